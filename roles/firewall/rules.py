"""The rules, and the units that load them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address

from roles.base.units import render
from roles.cluster.plan import HostPlan

RULES = "/etc/gpuquilt/firewall.nft"
UNIT = "gpuquilt-firewall.service"
UNIT_FILE = f"/etc/systemd/system/{UNIT}"
DROP_IN = "/etc/systemd/system/nftables.service.d/gpuquilt.conf"
TABLE = "inet gpuquilt"

PORTS = "tcp dport != "
HEADS = "elements = "
"""How the lines of the rules begin that hold the ports, and the addresses of the heads."""


@dataclass(frozen=True)
class Access:
    """Which ports are guarded, and the addresses that may reach them.

    Several ports, or heads of two plans, are there only between two plans: each of the heads may reach each of the ports.
    """

    ports: frozenset[int] = frozenset()
    heads: frozenset[IPv4Address] = frozenset()

    def __or__(self, other: Access) -> Access:
        return Access(self.ports | other.ports, self.heads | other.heads)


def access(plan: HostPlan) -> Access:
    """What a worker's plan wants."""
    return Access(frozenset({plan.rpc_port}), frozenset(plan.clients))


def rules(wanted: Access) -> str:
    """What nftables is to load on a worker: one table, exchanged in one transaction."""
    heads = [str(address) for address in sorted(wanted.heads)]
    return render("nftables/firewall.nft.j2", table=TABLE, ports=sorted(wanted.ports), heads=heads)


def read(lines: Iterable[str]) -> Access:
    """What rules guard, from those of their lines that begin with `PORTS` and `HEADS`; damaged ones guard nothing."""
    found: dict[str, list[str]] = {PORTS: [], HEADS: []}
    for line in lines:
        for begin in found:
            if line.startswith(begin):
                found[begin] += re.findall(r"[0-9.]+", line)
    try:
        ports = frozenset(map(int, found[PORTS]))
        heads = frozenset(map(IPv4Address, found[HEADS]))
    except ValueError:
        return Access()
    return Access(ports, heads) if ports and all(0 < port < 65536 for port in ports) else Access()


def units() -> dict[str, str]:
    """Path → text of what makes systemd load the rules: at boot, and whenever nftables.service has flushed them."""
    return {
        UNIT_FILE: render(f"systemd/{UNIT}.j2", rules=RULES),
        DROP_IN: render("systemd/nftables-gpuquilt.conf.j2", rules=RULES),
    }
