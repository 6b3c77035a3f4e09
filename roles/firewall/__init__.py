"""The guard of the RPC port: a worker answers its heads alone, because the protocol has no authentication.

On a worker: /etc/gpuquilt/firewall.nft · gpuquilt-firewall.service, which loads it at boot ·
/etc/systemd/system/nftables.service.d/gpuquilt.conf, which loads it after every start and reload of nftables.service ·
the nftables table `inet gpuquilt`.
Tables of the user are neither read nor changed, and ours speaks of the RPC port alone.
"""

from pyinfra.api import deploy

from roles.cluster.plan import HostPlan
from roles.firewall.operations import guard, unguard

__all__ = ["clean", "prepare"]


@deploy("Firewall")
def prepare(plan: HostPlan) -> None:
    """Guard the RPC port of a worker, before anything listens there; on other hosts nothing is changed."""
    if plan.worker:
        guard(name="Guard the RPC port", plan=plan)


@deploy("Firewall no longer needed")
def clean(plan: HostPlan) -> None:
    """Take the guard from a host that is no worker any more; to be called when the switch has taken its RPC server away."""
    if not plan.worker:
        unguard(name="Take the guard away")
