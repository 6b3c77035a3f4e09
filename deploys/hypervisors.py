"""Give GPUs of hypervisors to their virtual machines: `pyinfra inventories/lab.py deploys/hypervisors.py`.

The hosts of the group `hypervisors` alone: the others may be off, and what the inventory says of them unfinished.
"""

from pyinfra import host

from roles import cluster, passthrough
from roles.cluster.hypervisors import HYPERVISORS
from roles.cluster.look import look
from roles.settings import MODELS

# 1. Look.
seen = look(
    MODELS,
    machine_checks=[passthrough.check],
    only=HYPERVISORS,
)
machine = seen.plan.machines.get(host.name)

# 2. Prepare, and reboot what cannot go on without it.
if machine:
    passthrough.prepare(machine)
    cluster.reboot()
    passthrough.verify(machine)
