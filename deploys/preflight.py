"""Look at all hosts, and print what would be done and what speaks against it: `pyinfra inventories/lab.py deploys/preflight.py`.

It changes nothing. With `--data plan_json=PATH` the plan is written to a file as well.
"""

from roles import llama_cpp, llama_server, model, nvidia, preflight, rpc_server

preflight.show(
    [llama_cpp.Settings, model.Settings, rpc_server.Settings, llama_server.Settings, nvidia.Settings],
    checks=[llama_cpp.check, model.check, nvidia.check_toolkit],
)
