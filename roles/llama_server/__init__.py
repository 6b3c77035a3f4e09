"""The head: llama-server, which serves the model over HTTP and computes on its workers.

On the host: llama-server.service. The unit is only offered here; the switch puts it in place, on all hosts together.
"""

from pyinfra.api import deploy

from roles.base.download import Download
from roles.cluster.plan import HostPlan
from roles.llama_server.operations import offer
from roles.llama_server.readiness import answers
from roles.llama_server.settings import Settings

__all__ = ["Settings", "answers", "configure"]


@deploy("llama-server")
def configure(plan: HostPlan, settings: Settings, model: list[Download]) -> None:
    """Offer the unit of this head to the switch; nothing on the host is changed.

    :param model: its files, in order
    """
    offer(name="Unit", plan=plan, settings=settings, model=model)
