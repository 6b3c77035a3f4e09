"""Look at all hosts, and print what would be done and what speaks against it: `pyinfra inventories/lab.py deploys/preflight.py`.

It changes nothing. With `--data plan_json=PATH` the plan is written to a file as well.
"""

from roles import docker, llama_cpp, model, nvidia, passthrough, preflight
from roles.settings import MODELS

preflight.show(
    MODELS,
    checks=[llama_cpp.check, model.check, nvidia.check_toolkit],
    machine_checks=[passthrough.check, nvidia.check, docker.check],
)
