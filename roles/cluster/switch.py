"""What the switch of this run knows, host by host, while it happens; and what it decides from that. Pure.

One object for all hosts: whether to stop the head is decided from what every host shows, not from the host at hand.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from roles.cluster.banner import exceeds, lacks
from roles.cluster.plan import HostPlan, Plan
from roles.cluster.state import LLAMA_SERVER, RPC_SERVER, HostState, Seen, Service, Unit, lost_endpoints, reasons, superfluous


@dataclass
class Switch:
    """
    :param plan: all hosts; the switch is theirs or nobody's
    :param offered: host → unit name → unit, from the roles
    :param wanted: host → what it is to run
    :param seen: host → what it showed before the switch
    :param failures: host → why its part failed; the first reason wins
    :param restored: hosts that went back after a failure
    :param stranded: host → why it could not go back
    :param stopped: head → when its endpoint stopped answering: seconds since 1970 by its own clock
    """

    plan: Plan
    offered: dict[str, dict[str, Unit]] = field(default_factory=dict)
    wanted: dict[str, HostState] = field(default_factory=dict)
    seen: dict[str, Seen] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    restored: set[str] = field(default_factory=set)
    stranded: dict[str, str] = field(default_factory=dict)
    stopped: dict[str, float] = field(default_factory=dict)

    def offer(self, host: str, name: str, unit: Unit) -> None:
        """A role says what its unit is to be on a host."""
        self.offered.setdefault(host, {})[name] = unit

    def fail(self, host: str, reason: str) -> None:
        self.failures.setdefault(host, reason)

    @property
    def missing(self) -> list[str]:
        """Hosts of the plan that have not got this far: while there is one, nothing may be switched."""
        return [name for name, plan in self.plan.hosts.items() if name not in self.seen or not self._is_complete(name, plan)]

    def _is_complete(self, name: str, plan: HostPlan) -> bool:
        return name in self.wanted and set(planned_units(plan)) <= set(self.wanted[name].units)

    def reasons(self, host: str, unit: str) -> list[str]:
        """Why this host's unit must be (re)started; empty when it need not, or when the host is not to have it."""
        return self.worker_reasons(host) if unit == RPC_SERVER else self.head_reasons(host)

    def worker_reasons(self, host: str) -> list[str]:
        """Why this worker must be restarted."""
        if not self.plan.hosts[host].worker:
            return []
        return reasons(RPC_SERVER, self.wanted[host], self.seen[host])

    def head_reasons(self, host: str) -> list[str]:
        """Why this head must be restarted: itself, or a worker of its that is restarted or that it has lost."""
        if not self.plan.hosts[host].head:
            return []
        endpoints = self.wanted[host].units[LLAMA_SERVER].endpoints
        found = reasons(LLAMA_SERVER, self.wanted[host], self.seen[host])
        if not found:
            found = [f"its connection to {endpoint} is lost" for endpoint in lost_endpoints(endpoints, self.seen[host])]
        for name in self.workers_of(host):
            if self.worker_reasons(name):
                found.append(f"its worker {name} is restarted")
        return found

    def workers_of(self, head: str) -> list[str]:
        """The workers that a head is to use."""
        endpoints = set(self.wanted[head].units[LLAMA_SERVER].endpoints)
        return [
            name
            for name, plan in self.plan.hosts.items()
            if plan.worker and endpoints & set(self.wanted[name].units[RPC_SERVER].endpoints)
        ]

    def superfluous(self, host: str) -> list[str]:
        """Units of ours that this host has and should not have: it is no worker, or no head, any more."""
        return superfluous(self.wanted[host], self.seen[host])

    def changed(self, host: str) -> bool:
        """Whether the switch touches this host."""
        if self.missing:
            return False
        return bool(self.worker_reasons(host) or self.head_reasons(host) or self.superfluous(host))

    def moves(self, host: str) -> bool:
        """Whether what this host ran becomes the release before: some host changes its release, and this one did not yet."""
        verified = self.seen[host].verified
        if verified is None or verified.generation == self.wanted[host].generation:
            return False
        pairs = [(self.seen[name].verified, self.wanted[name]) for name in self.wanted if name in self.seen]
        return any(old is not None and old.release != new.release for old, new in pairs)

    def keep(self, host: str) -> frozenset[str]:
        """The releases that stay on a host after a good switch: what runs, and the one before."""
        seen = self.seen[host]
        before = seen.verified if self.moves(host) else seen.before
        return frozenset({self.wanted[host].release} | ({before.release} if before else set()))

    @property
    def obstacle(self) -> str:
        """Why nothing may be switched, in one sentence; empty when nothing stands in the way."""
        if self.missing:
            return f"{', '.join(self.missing)}: not ready for the switch (the reason stands above), so no host was switched."
        states = self.wanted.items()
        if len({state.generation for _, state in states}) > 1:
            who = ", ".join(f"{name} {state.commit[:12]}" for name, state in states)
            return (
                f"inventory: what the hosts would run does not belong together ({who}), so no host was switched:"
                " run deploys/cluster.py, which brings all hosts to one commit."
            )
        return ""

    def is_ours(self, host: str, unit: str) -> bool:
        """Whether a unit of this name is by us: it was before the switch, or the switch puts it there."""
        return unit in self.wanted[host].units or self.seen[host].services.get(unit, Service()).ours

    def back(self, host: str) -> HostState | None:
        """What this host goes back to.

        A worker that served too little or too much before the switch may do so after it; of a head nobody knows what it did.
        """
        seen = self.seen[host]
        if seen.verified is None:
            return None
        units = {
            name: replace(unit, backend="") if _may_be_amiss(name, unit, seen.services.get(name, Service())) else unit
            for name, unit in seen.verified.units.items()
        }
        return replace(seen.verified, units=units)

    @property
    def outcome(self) -> str:
        """What runs after a failed switch, in one sentence."""
        if self.stranded:
            return f"{', '.join(self.stranded)} could not go back: look there, and run the deploy again."
        new = sorted(name for name in self.restored if self.seen[name].verified is None)
        if len(new) == len(self.restored):
            return "There was no release before to go back to, so the services were stopped; correct the cause and run again."
        if new:
            return (
                f"The other hosts are back on the release before, which answers; the services of {', '.join(new)} were stopped."
            )
        return "Every host is back on the release before, which answers."


def _may_be_amiss(name: str, unit: Unit, service: Service) -> bool:
    lack, surplus = lacks(service.devices, unit.backend, unit.gpus), exceeds(service.devices, unit.gpus)
    return name == LLAMA_SERVER or bool(lack or surplus)


def planned_units(plan: HostPlan) -> dict[str, tuple[str, ...]]:
    """The units that a host is to have by the plan → the endpoints that each offers or uses."""
    units: dict[str, tuple[str, ...]] = {}
    if plan.worker:
        units[RPC_SERVER] = (f"{plan.address}:{plan.rpc_port}",)
    if plan.head:
        units[LLAMA_SERVER] = plan.endpoints
    return units


def foreign_units(plan: HostPlan, seen: Seen) -> list[str]:
    """What is wrong with a host that runs llama.cpp under our names already, one sentence each, without its name."""
    return [
        f"/etc/systemd/system/{unit} is not ours, and would be replaced: remove it, or rename it and its service."
        for unit in planned_units(plan)
        if (service := seen.services.get(unit, Service())).file_digest and not service.ours
    ]


def other_gpus(plan: HostPlan, before: HostState) -> str:
    """How the GPUs of a host differ from those that its worker lent then, which its unit may name; empty where they do not."""
    lent = max((unit.gpus for unit in before.units.values()), default=0)
    return "" if lent in (0, plan.gpus) else f"its worker lent {lent} GPUs before the last switch, and {plan.gpus} are there now"


def fits(plan: HostPlan, before: HostState) -> bool:
    """Whether a host can go back to a state while the inventory, and with it the firewall, stays as it is."""
    return planned_units(plan) == {name: unit.endpoints for name, unit in before.units.items()}
