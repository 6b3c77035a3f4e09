"""The guard of the RPC port: a worker answers its heads alone, because the protocol has no authentication.

On a worker: /etc/gpuquilt/firewall.nft · gpuquilt-firewall.service, which loads it at boot ·
/etc/systemd/system/nftables.service.d/gpuquilt.conf, which loads it after every start, reload and stop of nftables.service ·
the nftables table `inet gpuquilt`.
Tables of the user are neither read nor changed, and ours speaks of the RPC port alone.
"""

from pyinfra.api import deploy

from roles.cluster.plan import HostPlan
from roles.firewall.operations import guard, guard_both, unguard

__all__ = ["prepare", "remove", "settle"]


@deploy("Firewall")
def prepare(plan: HostPlan) -> None:
    """Guard the RPC port of a worker before anything listens there, and go on guarding the one that still serves.

    To be called before the switch. On other hosts nothing is changed.
    """
    if plan.worker:
        guard_both(name="Guard the RPC port", plan=plan)


@deploy("Firewall after the switch")
def settle(plan: HostPlan) -> None:
    """Guard what the plan wants and nothing else, and take the guard from a host that is no worker any more.

    To be called on every host once the switch has succeeded: what served before needs its guard until then.
    """
    if plan.worker:
        guard(name="Guard the RPC port alone", plan=plan)
    else:
        unguard(name="Take the guard away")


@deploy("Firewall")
def remove() -> None:
    """Take the guard away, once no RPC server runs."""
    unguard(name="Take the guard away")
