"""Which virtual machine runs on which hypervisor, and what follows from that. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches

HYPERVISORS = "hypervisors"
"""The group whose hosts have virtual machines."""

RunsOn = Mapping[str, str | None]
"""Host → the hypervisor that it is a virtual machine of, by the setting `runs_on`."""


def problems(runs_on: RunsOn, hypervisors: Collection[str]) -> list[str]:
    """What is wrong with the hypervisors that hosts name.

    :param runs_on: for every host
    :param hypervisors: the hosts of that group
    """
    found = []
    for name, wanted in runs_on.items():
        if wanted is not None and wanted not in hypervisors:
            found.append(f"{name}: runs_on = {wanted!r} is no host of `{HYPERVISORS}`: {_way_out(wanted, runs_on, hypervisors)}")
        elif name in below(name, runs_on):
            found.append(f"{name}: runs_on = {wanted!r} says that it runs on itself: name the machine that it is a guest of.")
    return found


def below(name: str, runs_on: RunsOn) -> list[str]:
    """What a host runs on, what that runs on, and so on."""
    found: list[str] = []
    there = runs_on.get(name)
    while there is not None and there not in found:
        found.append(there)
        there = runs_on.get(there)
    return found


def guests(name: str, runs_on: RunsOn) -> list[str]:
    """The virtual machines of a hypervisor, and those of its virtual machines."""
    return [other for other in runs_on if name in below(other, runs_on)]


def _way_out(wanted: str, hosts: Iterable[str], hypervisors: Collection[str]) -> str:
    close = get_close_matches(wanted, hypervisors, n=1)
    if wanted in hosts:
        return f"put {wanted} into that group, or take `runs_on` out."
    if close:
        return f"did you mean {close[0]!r}?"
    return f"name one of them ({', '.join(hypervisors) or 'there is none'}), or take `runs_on` out."
