"""Make hosts ready for llama.cpp, and stop there: `pyinfra inventories/lab.py deploys/prepare.py`.

Packages, passthrough, drivers, Docker, and the reboots that these need, if `reboot` allows them. No service of ours is touched.
"""

from pyinfra import host

from roles import amd, base, cluster, docker, intel, llama_cpp, llama_server, model, nvidia, passthrough, rpc_server
from roles.cluster.look import look

# 1. Look: one plan for all hosts, or no change at all.
seen = look(
    [llama_cpp.Settings, model.Settings, rpc_server.Settings, llama_server.Settings, nvidia.Settings],
    checks=[nvidia.check_toolkit],
    machine_checks=[passthrough.check, nvidia.check, docker.check],
)
machine = seen.plan.machines[host.name]
settings = seen.settings[host.name][nvidia.Settings]

# 2. Prepare. A hypervisor that is nothing else gets what concerns its GPUs alone.
if host.name in seen.plan.hosts:
    base.prepare()
passthrough.prepare(machine)
nvidia.prepare(machine, settings)
if host.name in seen.plan.hosts:
    nvidia.prepare_toolkit(seen.plan.hosts[host.name], machine, settings)
intel.prepare(machine)
amd.prepare(machine)
docker.prepare(machine)
cluster.reboot(machine)
nvidia.verify(machine)
