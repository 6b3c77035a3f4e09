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
    :param stopped: when the endpoint stopped answering: seconds since 1970 by the head's clock
    :param answered: when it answered again, by the same clock
    """

    plan: Plan
    offered: dict[str, dict[str, str]] = field(default_factory=dict)
    wanted: dict[str, HostState] = field(default_factory=dict)
    seen: dict[str, Seen] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    stopped: float | None = None
    answered: float | None = None

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
        """Why this worker must be restarted."""
        if not self.plan.hosts[host].worker:
            return []
        return reasons(RPC_SERVER, self.wanted[host], self.seen[host])

    def head_reasons(self, host: str) -> list[str]:
        """Why this head must be restarted: itself, or a worker of its that is restarted or that it has lost."""
        plan = self.plan.hosts[host]
        if not plan.head:
            return []
        found = reasons(LLAMA_SERVER, self.wanted[host], self.seen[host])
        if not found:
            found = [f"its connection to {endpoint} is lost" for endpoint in lost_endpoints(plan.endpoints, self.seen[host])]
        for name, other in self.plan.hosts.items():
            if f"{other.address}:{other.rpc_port}" in plan.endpoints and self.worker_reasons(name):
                found.append(f"its worker {name} is restarted")
        return found

    @property
    def needed(self) -> bool:
        """Whether any host has to change."""
        return not self.missing and any(self.worker_reasons(name) or self.head_reasons(name) for name in self.plan.hosts)
