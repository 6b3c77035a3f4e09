"""The worker: llama.cpp's RPC server, which lends a host's devices to a head.

On the host: rpc-server.service, and below /var/cache/llama.cpp/ the tensors that heads have sent. The unit is only offered
here; the switch puts it in place, on all hosts together.
"""

from pyinfra.api import deploy

from roles.cluster.plan import HostPlan
from roles.rpc_server.operations import offer
from roles.rpc_server.readiness import listening
from roles.rpc_server.settings import Settings

__all__ = ["Settings", "configure", "listening"]


@deploy("RPC server")
def configure(plan: HostPlan, settings: Settings) -> None:
    """Offer the unit of this worker to the switch; nothing on the host is changed."""
    offer(name="Unit", plan=plan, settings=settings)
