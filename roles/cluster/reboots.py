"""What this run knows of the reboots that its hosts owe, and what it decides from that. Pure.

One object for all hosts: whether one may be rebooted is decided from what every host owes, before the first reboot.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from roles.cluster.hypervisors import HYPERVISORS, RunsOn, below, guests
from roles.cluster.plan import Host
from roles.cluster.provision import MachinePlan


@dataclass(frozen=True)
class Standing:
    """How a host stood when it was last looked at.

    :param boot_id: tells this boot of it from another; empty where it does not say
    """

    boot_id: str
    machine: MachinePlan


@dataclass
class Reboots:
    """
    :param hosts: the hosts of this run, by name
    :param standing: host → how it stands: as the plan has it, and from `look_again` on as it was prepared
    :param carrying: the hosts whose reboot would end this run: this computer, and what it runs on
    :param under_way: the host that was told to reboot and has not come back; while there is one, nobody else is rebooted
    """

    hosts: Mapping[str, Host] = field(default_factory=dict)
    standing: dict[str, Standing] = field(default_factory=dict)
    carrying: frozenset[str] = frozenset()
    under_way: str = ""

    def owes(self, name: str) -> bool:
        """Whether this run cannot go on before this host has rebooted."""
        return self.standing[name].machine.must_reboot

    def is_due(self, name: str) -> bool:
        """Whether this host owes a reboot that this run may do."""
        return self.owes(name) and self.hosts[name].settings.reboot == "when-owed"

    def is_hypervisor(self, name: str) -> bool:
        return HYPERVISORS in self.hosts[name].groups

    def guests(self, name: str) -> list[str]:
        """The virtual machines of a host, as far as they are hosts of this run."""
        return guests(name, {other: host.settings.runs_on for other, host in self.hosts.items()})

    def silenced(self, name: str) -> list[str]:
        """The workers and heads that do not answer while a host reboots."""
        return [other for other in (name, *self.guests(name)) if self.hosts[other].serves]

    def objections(self, name: str) -> list[str]:
        """Why this host cannot get over the reboots that are owed, one sentence each; the first that owes one speaks for all."""
        refusals = [f"{name}: {refusal}" for refusal in self.standing[name].machine.refusals]
        return refusals + self._not_allowed(name) + self._not_possible(name)

    def _not_allowed(self, name: str) -> list[str]:
        owing = [other for other in self.standing if self.owes(other) and not self.is_due(other)]
        if owing[:1] != [name]:
            return []
        why = "; ".join(f"{other} ({self.standing[other].machine.reboot})" for other in owing)
        return [
            f'reboots are owed, and this run cannot go on before them: {why}: reboot them, or set `reboot = "when-owed"`, then'
            " run again."
        ]

    def _not_possible(self, name: str) -> list[str]:
        if not self.is_due(name):
            return []
        if name in self.carrying:
            why = "the computer that this runs on would go down with it"
        elif not self.standing[name].boot_id:
            why = "it has no boot id, by which a reboot could be proved"
        else:
            return []
        return [
            f"{name}: a reboot is owed ({self.standing[name].machine.reboot}), and {why}: reboot it yourself, then run again."
        ]


def carrying(own_boot: str, boots: Mapping[str, str], runs_on: RunsOn) -> frozenset[str]:
    """The hosts whose reboot would take down the computer that this runs on; a container has the boot id of its host.

    :param own_boot: its boot id; empty where it has none
    :param boots: host → boot id
    """
    own = [name for name, boot in boots.items() if own_boot and boot == own_boot]
    return frozenset([*own, *(lower for name in own for lower in below(name, runs_on))])
