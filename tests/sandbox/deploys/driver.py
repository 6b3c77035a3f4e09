"""NVIDIA's driver alone, out of the inventory of a whole cluster: what deploys/prepare.py does for it, up to the verification."""

from pyinfra import host

from roles import llama_cpp, llama_server, model, nvidia, rpc_server
from roles.cluster.look import look

seen = look(
    [llama_cpp.Settings, model.Settings, rpc_server.Settings, llama_server.Settings, nvidia.Settings],
    machine_checks=[nvidia.check],
)
nvidia.prepare(seen.plan.machines[host.name], seen.settings[host.name][nvidia.Settings])
