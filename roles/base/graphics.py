"""GPUs that a driver of Linux's own drives: their firmware and user space, and access to them for the user of the services."""

from __future__ import annotations

from collections.abc import Sequence

from pyinfra import host
from pyinfra.api import FactBase, StringCommand, deploy, operation
from typing_extensions import override

from roles.base.facts import RecordFact
from roles.base.machine import USER
from roles.base.operations import Commands, chosen_packages, components, remove_packages

GROUPS = ("render", "video")
"""The groups that /dev/dri and /dev/kfd belong to."""
RECORD = "graphics"
"""Names what was installed, for its removal."""


class GroupsFact(FactBase[frozenset[str]]):
    """Those of `GROUPS` that the user of the services is in."""

    default = frozenset

    @override
    def command(self) -> str:
        return f"id -nG {USER} 2>/dev/null; true"

    @override
    def process(self, output: list[str]) -> frozenset[str]:
        return frozenset(word for line in output for word in line.split()) & frozenset(GROUPS)


@deploy("Graphics")
def graphics(packages: Sequence[str]) -> None:
    """Install what the plan names, and let the services use the GPUs; nothing is installed where it names nothing."""
    if any(name.startswith("firmware-") for name in packages):
        # Where Debian has it since Debian 12.
        components(name="Component of the firmware", names=["non-free-firmware"])
    if packages:
        chosen_packages(name="Packages", record=RECORD, packages=list(packages))
    access(name="Access to the GPUs")


@deploy("Graphics taken back")
def no_graphics() -> None:
    """Take back what `graphics` has left."""
    remove_packages(name="Packages", record=RECORD)
    no_component(name="Component of the firmware")
    no_access(name="Access to the GPUs")


@operation()
def no_component() -> Commands:
    """Our components of the distribution's archive are no source any more, unless NVIDIA's driver has its upgrades from there."""
    if host.get_fact(RecordFact, record="nvidia").states:
        host.noop("NVIDIA's driver comes from there")
    else:
        yield from components._inner(names=[])


@operation()
def access() -> Commands:
    """The user of the services may use the GPUs; a service that runs already may after its next start."""
    missing = [group for group in GROUPS if group not in host.get_fact(GroupsFact)]
    if not missing:
        host.noop(f"{USER} is in all groups")
        return
    # They come with udev, which a host may get later than us.
    yield StringCommand(" && ".join(f"groupadd --force --system {group}" for group in missing))
    yield StringCommand(f"usermod --append --groups {','.join(missing)} {USER}")


@operation()
def no_access() -> Commands:
    """The user of the services is in none of the groups."""
    there = host.get_fact(GroupsFact)
    for group in sorted(there):
        yield StringCommand(f"gpasswd --delete {USER} {group}")
    if not there:
        host.noop(f"{USER} is in no such group")
