"""The model alone, out of the inventory of a whole cluster: what deploys/cluster.py does for it, and no more."""

from pyinfra import host

from roles import base, llama_cpp, llama_server, model, nvidia, rpc_server
from roles.cluster.look import look

seen = look(
    [llama_cpp.Settings, model.Settings, rpc_server.Settings, llama_server.Settings, nvidia.Settings],
    checks=[model.check],
)
base.prepare()
if seen.plan.hosts[host.name].head:
    model.prepare(seen.settings[host.name][model.Settings])
