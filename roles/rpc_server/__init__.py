"""The worker: llama.cpp's RPC server, which lends a host's devices to a head.

On the host: rpc-server.service, below /var/cache/llama.cpp/ the tensors that heads have sent, and
/etc/tmpfiles.d/gpuquilt.conf, by which systemd deletes the old ones. The unit is only offered here; the switch puts it in
place, on all hosts together.
"""

from io import StringIO

from pyinfra.api import deploy
from pyinfra.operations import files

from roles.base.removal import no_paths
from roles.cluster.plan import HostPlan
from roles.rpc_server.cache import RULE, rule
from roles.rpc_server.operations import offer
from roles.rpc_server.readiness import listening
from roles.rpc_server.settings import Settings

__all__ = ["Settings", "configure", "listening", "prepare", "remove"]


@deploy("RPC server")
def configure(plan: HostPlan, settings: Settings) -> None:
    """Offer the unit of this worker to the switch; nothing on the host is changed."""
    offer(name="Unit", plan=plan, settings=settings)


@deploy("RPC server")
def prepare(settings: Settings) -> None:
    """Bound the cache of tensors; touches no service."""
    files.put(name="Age of cached tensors", src=StringIO(rule(settings)), dest=RULE, mode="644")


@deploy("RPC server")
def remove() -> None:
    """Take back what `prepare` left; the unit is the cluster's to remove."""
    no_paths(name="No rule for cached tensors", paths=[RULE])
