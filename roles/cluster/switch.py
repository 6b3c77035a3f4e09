"""What the switch of this run knows, host by host, while it happens; and what it decides from that. Pure.

One object for all hosts: whether to stop the head is decided from what every host shows, not from the host at hand.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from roles.cluster.plan import Plan
from roles.cluster.state import LLAMA_SERVER, RPC_SERVER, HostState, Seen, lost_endpoints, reasons


@dataclass
class Switch:
    """
    :param plan: all hosts; the switch is theirs or nobody's
    :param offered: host → unit → text, from the roles
    :param wanted: host → what it is to run
    :param seen: host → what it showed before the switch
    :param failures: host → why its part failed; the first reason wins
    :param restored: hosts that went back after a failure
    :param stranded: host → why it could not go back
    :param stopped: when the endpoint stopped answering: seconds since 1970 by the head's clock
    """

    plan: Plan
    offered: dict[str, dict[str, str]] = field(default_factory=dict)
    wanted: dict[str, HostState] = field(default_factory=dict)
    seen: dict[str, Seen] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    restored: set[str] = field(default_factory=set)
    stranded: dict[str, str] = field(default_factory=dict)
    stopped: float | None = None

    def offer(self, host: str, unit: str, text: str) -> None:
        """A role says what its unit is to be on a host."""
        self.offered.setdefault(host, {})[unit] = text

    def fail(self, host: str, reason: str) -> None:
        self.failures.setdefault(host, reason)

    @property
    def missing(self) -> list[str]:
        """Hosts of the plan that have not got this far: while there is one, nothing may be switched."""
        return [name for name in self.plan.hosts if name not in self.wanted or name not in self.seen]

    def worker_reasons(self, host: str) -> list[str]:
        """Why this worker must be restarted; a host that was no worker before has none to go back to."""
        if not self.plan.hosts[host].worker or RPC_SERVER not in self.wanted[host].units:
            return []
        return reasons(RPC_SERVER, self.wanted[host], self.seen[host])

    def head_reasons(self, host: str) -> list[str]:
        """Why this head must be restarted: itself, or a worker of its that is restarted or that it has lost."""
        plan = self.plan.hosts[host]
        if not plan.head or LLAMA_SERVER not in self.wanted[host].units:
            return []
        found = reasons(LLAMA_SERVER, self.wanted[host], self.seen[host])
        if not found:
            found = [f"its connection to {endpoint} is lost" for endpoint in lost_endpoints(plan.endpoints, self.seen[host])]
        for name, other in self.plan.hosts.items():
            if f"{other.address}:{other.rpc_port}" in plan.endpoints and self.worker_reasons(name):
                found.append(f"its worker {name} is restarted")
        return found

    def changed(self, host: str) -> bool:
        """Whether the switch touches this host."""
        return not self.missing and bool(self.worker_reasons(host) or self.head_reasons(host))

    def keep(self, host: str) -> frozenset[str]:
        """The releases that stay on a host after a good switch: what runs, and the one before."""
        wanted, seen = self.wanted[host], self.seen[host]
        moved = seen.verified is not None and seen.verified.generation != wanted.generation
        before = seen.verified if moved else seen.before
        return frozenset({wanted.release} | ({before.release} if before else set()))

    @property
    def obstacle(self) -> str:
        """Why nothing may be switched, in one sentence; empty when nothing stands in the way."""
        if self.missing:
            return f"{', '.join(self.missing)}: not ready for the switch (the reason stands above), so no host was switched."
        states = self.wanted.items()
        if len({state.generation for _, state in states}) > 1:
            who = ", ".join(f"{name} {state.commit[:12]}" for name, state in states)
            return f"inventory: what the hosts would run does not belong together ({who}), so no host was switched."
        return ""

    @property
    def outcome(self) -> str:
        """What runs after a failed switch, in one sentence."""
        if self.stranded:
            return f"{', '.join(self.stranded)} could not go back: look there, and run the deploy again."
        new = [name for name in self.restored if self.seen[name].verified is None]
        if len(new) == len(self.restored):
            return "There was no release before to go back to, so the services were stopped; correct the cause and run again."
        if new:
            return (
                f"The other hosts are back on the release before, which answers; the services of {', '.join(new)} were stopped."
            )
        return "Every host is back on the release before, which answers."
