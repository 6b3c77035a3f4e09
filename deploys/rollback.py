"""Bring the cluster back to the release before: `pyinfra inventories/lab.py deploys/rollback.py`.

Run it twice to go forward again. The inventory still names the newer commit: `deploys/cluster.py` would go there again.
"""

from functools import partial

from pyinfra import host

from roles import cluster, llama_cpp, llama_server, rpc_server
from roles.cluster.look import look
from roles.cluster.state import LLAMA_SERVER, RPC_SERVER
from roles.settings import MODELS

# Before the endpoint is taken down: is what it is to go back to still there?
seen = look(MODELS, checks=[llama_cpp.check_before])
plan = seen.plan.hosts.get(host.name)

# A hypervisor that is nothing else runs nothing of ours: it takes part in the look alone.
if plan:
    settings = seen.settings[host.name]
    ready = {}

    if plan.worker:
        ready[RPC_SERVER] = rpc_server.listening
    if plan.head:
        ready[LLAMA_SERVER] = partial(llama_server.answers, settings=settings[llama_server.Settings])
    cluster.roll_back(ready)
