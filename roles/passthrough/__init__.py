"""GPUs of a hypervisor that belong to its virtual machines: bound to vfio-pci before any other driver can touch them."""

from pyinfra.api import deploy

from roles.base.settings import HostSettings
from roles.cluster.provision import MachinePlan


def check(machine: MachinePlan, settings: HostSettings) -> list[str]:
    """Why this host cannot have it, one sentence each, as far as that can be known before anything is changed."""
    return []


@deploy("Passthrough")
def prepare(machine: MachinePlan) -> None:
    """Make it so; touches no service of ours."""


@deploy("passthrough")
def remove() -> None:
    """Take back what `prepare` left."""
