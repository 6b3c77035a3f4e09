"""The cluster as a whole: its settings, the plan, and the lock-step switch of all hosts from one release to another.

On the host: /var/lib/gpuquilt/verified.json (the state that answered last) · /var/lib/gpuquilt/before.json (the one before).
Knows no role: what a role puts on a host reaches it as a release name and the text of units.
"""
