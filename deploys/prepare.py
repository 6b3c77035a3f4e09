"""Make hosts ready for llama.cpp, and stop there: `pyinfra inventories/lab.py deploys/prepare.py`.

Packages, passthrough, drivers, Docker, and the reboots that these need, if `reboot` allows them. No service of ours is touched.
"""

from pyinfra import host

from roles import amd, base, cluster, docker, intel, nvidia, passthrough
from roles.cluster.look import look
from roles.settings import MODELS

# 1. Look: one plan for all hosts, or no change at all.
seen = look(
    MODELS,
    checks=[nvidia.check_toolkit],
    machine_checks=[passthrough.check, nvidia.check, docker.check],
)
machine = seen.plan.machines[host.name]
settings = seen.settings[host.name]

# 2. Prepare. A hypervisor that is nothing else gets what concerns its GPUs alone.
plan = seen.plan.hosts.get(host.name)
if plan:
    base.prepare()
passthrough.prepare(machine)
nvidia.prepare(machine, settings[nvidia.Settings])
if plan:
    nvidia.prepare_toolkit(plan, machine, settings[nvidia.Settings])
    intel.prepare(machine)
    amd.prepare(machine)
    docker.prepare(machine, settings[docker.Settings])

# What is prepared may have to be booted into, all of it at once; what follows then asks the hosts anew.
cluster.reboot()
passthrough.verify(machine)
nvidia.verify(machine)
if plan:
    docker.settle(machine, settings[docker.Settings])
