"""Whether a worker serves."""

from __future__ import annotations

from pyinfra.api.host import Host
from pyinfra.api.state import State

from roles.base.remote import HostError, say
from roles.base.sight import Sight
from roles.base.watch import Watch
from roles.cluster.state import RPC_SERVER, Unit

TIMEOUT = 30
"""Seconds until a worker must listen; a GPU's driver was seen to take several of them."""


def listening(state: State, host: Host, unit: Unit) -> None:
    """Wait until the RPC server itself listens where it should, without connecting to it: it serves one client at a time.

    Its exit status says nothing (it ends with 0 when it cannot bind), and neither does a successful start.

    :raises HostError: it does not listen within `TIMEOUT`, listens elsewhere, or ends; the text holds its journal's reason
    """
    wanted = unit.listens

    def ready(sight: Sight) -> bool:
        if sight.listening - {wanted}:
            found = ", ".join(sorted(sight.listening))
            raise HostError(f"{RPC_SERVER} listens on {found} instead of {wanted}: look for a drop-in of its unit.")
        return bool(sight.listening)

    Watch(state, host, RPC_SERVER).wait(TIMEOUT, ready, lambda sight: f"it does not listen on {wanted} yet ({sight.state})")
    say(host, f"{RPC_SERVER} listens on {wanted}")
