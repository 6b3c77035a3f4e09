"""The rules, and the units that load them. Pure."""

from __future__ import annotations

from roles.base.units import render
from roles.cluster.plan import HostPlan

RULES = "/etc/gpuquilt/firewall.nft"
UNIT = "gpuquilt-firewall.service"
UNIT_FILE = f"/etc/systemd/system/{UNIT}"
DROP_IN = "/etc/systemd/system/nftables.service.d/gpuquilt.conf"
TABLE = "inet gpuquilt"


def rules(plan: HostPlan) -> str:
    """What nftables is to load on a worker: one table, exchanged in one transaction."""
    clients = [str(address) for address in sorted(plan.clients)]
    return render("nftables/firewall.nft.j2", table=TABLE, port=plan.rpc_port, clients=clients)


def units() -> dict[str, str]:
    """Path → text of what makes systemd load the rules: at boot, and whenever nftables.service has flushed them."""
    return {
        UNIT_FILE: render(f"systemd/{UNIT}.j2", rules=RULES),
        DROP_IN: render("systemd/nftables-gpuquilt.conf.j2", rules=RULES),
    }
