"""Give GPUs of hypervisors to their virtual machines: `pyinfra inventories/lab.py deploys/hypervisors.py`.

The hosts of the group `hypervisors` alone: the others may be off, and what the inventory says of them unfinished.
"""

from pyinfra import host

from roles import cluster, llama_cpp, llama_server, model, passthrough, rpc_server
from roles.cluster.hypervisors import HYPERVISORS
from roles.cluster.look import look

# 1. Look.
seen = look(
    [llama_cpp.Settings, model.Settings, rpc_server.Settings, llama_server.Settings],
    machine_checks=[passthrough.check],
    only=HYPERVISORS,
)
machine = seen.plan.machines.get(host.name)

# 2. Prepare, and reboot what cannot go on without it.
if machine:
    passthrough.prepare(machine)
    cluster.reboot()
    passthrough.verify(machine)
