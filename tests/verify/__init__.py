"""Is it so? A look at the machines from outside, which shares no code with what it checks but the plan.

``pytest tests/verify --inventory inventories/lab.py [--data key=value ...]``. It changes nothing, opens no connection to an
RPC port (a worker serves one client at a time), and asks the endpoint only where an answer cannot crash the head.
"""
