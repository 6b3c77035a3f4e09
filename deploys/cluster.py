"""Make the inventory's hosts one LLM endpoint, and upgrade it: `pyinfra inventories/lab.py deploys/cluster.py`.

Every host goes through the same calls in the same order; pyinfra finishes one on all hosts before the next begins.
"""

from functools import partial
from pathlib import Path

from pyinfra import host, local

from roles import cluster, docker, firewall, llama_cpp, llama_server, model, nvidia, passthrough, rpc_server
from roles.cluster.look import look
from roles.cluster.state import LLAMA_SERVER, RPC_SERVER
from roles.settings import MODELS

# 1. Look: one plan for all hosts, or no change at all.
seen = look(
    MODELS,
    checks=[llama_cpp.check, model.check, nvidia.check_toolkit],
    machine_checks=[passthrough.check, nvidia.check, docker.check],
)
plan = seen.plan.hosts.get(host.name)

# 2. Prepare: packages, drivers, reboots, firewall, model. No service of ours is touched.
local.include(str(Path(__file__).resolve().with_name("prepare.py")))

# A hypervisor that is nothing else runs nothing of ours.
if plan:
    settings = seen.settings[host.name]
    ready = {}

    firewall.prepare(plan)
    llama_cpp.prepare(plan)
    if plan.worker:
        rpc_server.prepare(settings[rpc_server.Settings])
    if plan.head:
        model.prepare(settings[model.Settings])

    # 3. Build: every host gets the pinned release, while the old one still serves.
    llama_cpp.build(plan, settings[llama_cpp.Settings])
    llama_cpp.fetch(plan)

    # 4. and 5. Switch, all hosts in lock step; back to the release before if it does not answer.
    if plan.worker:
        rpc_server.configure(plan, settings[rpc_server.Settings])
        ready[RPC_SERVER] = rpc_server.listening
    if plan.head:
        llama_server.configure(plan, settings[llama_server.Settings], model.files(settings[model.Settings]))
        ready[LLAMA_SERVER] = partial(llama_server.answers, settings=settings[llama_server.Settings])
    cluster.switch(ready)
    firewall.settle(plan)
    llama_cpp.prune(lambda: seen.switch.keep(plan.name))
