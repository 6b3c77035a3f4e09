"""What an AMD GPU needs to compute: firmware, user-space drivers, and access for the user that the services run as."""

from pyinfra.api import deploy

from roles.base.settings import HostSettings
from roles.cluster.provision import MachinePlan


def check(machine: MachinePlan, settings: HostSettings) -> list[str]:
    """Why this host cannot have it, one sentence each, as far as that can be known before anything is changed."""
    return []


@deploy("AMD GPUs")
def prepare(machine: MachinePlan) -> None:
    """Make it so; touches no service of ours."""


@deploy("amd")
def remove() -> None:
    """Take back what `prepare` left."""
