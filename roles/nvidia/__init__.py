"""NVIDIA's driver on a host, of the branch that the plan names, and nothing that could move it away from there."""

from pyinfra.api import deploy

from roles.base.settings import HostSettings
from roles.cluster.provision import MachinePlan


def check(machine: MachinePlan, settings: HostSettings) -> list[str]:
    """Why this host cannot have it, one sentence each, as far as that can be known before anything is changed."""
    return []


@deploy("NVIDIA driver")
def prepare(machine: MachinePlan) -> None:
    """Make it so; touches no service of ours."""


@deploy("nvidia")
def remove() -> None:
    """Take back what `prepare` left."""
