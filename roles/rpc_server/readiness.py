"""Whether a worker serves."""

from __future__ import annotations

from collections.abc import Sequence

from pyinfra.api.host import Host
from pyinfra.api.state import State

from roles.base.remote import HostError, say
from roles.base.sight import Sight, reasons, telling
from roles.base.watch import Watch
from roles.cluster import banner
from roles.cluster.state import RPC_SERVER, Unit

TIMEOUT = 30
"""Seconds until a worker must listen; a GPU's driver was seen to take several of them."""

_WAY_OUT = "see to the driver there, correct `backend`, or name in rpc_server_devices those that are meant"


def listening(state: State, host: Host, unit: Unit) -> None:
    """Wait until the RPC server itself listens where it should, without connecting to it: it serves one client at a time.

    Its exit status says nothing (it ends with 0 when it cannot bind), and neither does a successful start. What it computes with
    is what it says itself: a GPU that cannot be used makes it serve the processors instead.

    :raises HostError: it does not listen within `TIMEOUT`, listens elsewhere, ends, or serves fewer devices than it is to serve,
        or more; the text holds its journal's reason
    """
    wanted = unit.listens
    watch = Watch(state, host, RPC_SERVER, _diagnosis)
    served: tuple[banner.Device, ...] = ()

    def ready(sight: Sight) -> bool:
        nonlocal served
        if sight.listening - {wanted}:
            found = ", ".join(sorted(sight.listening))
            raise HostError(f"{RPC_SERVER} listens on {found} instead of {wanted}: look for a drop-in of its unit.")
        if not sight.listening or not unit.backend:
            return bool(sight.listening)
        journal = watch.journal()
        served = banner.devices(journal)
        if lack := banner.lacks(served, unit.backend, unit.gpus):
            raise HostError(_too_few(lack, journal))
        if surplus := banner.exceeds(served, unit.gpus):
            raise HostError(_too_many(surplus, unit.backend))
        return bool(served)

    def doing(sight: Sight) -> str:
        if sight.listening:
            return "it listens, and its journal does not name its devices yet"
        return f"it does not listen on {wanted} yet ({sight.state})"

    watch.wait(TIMEOUT, ready, doing)
    say(host, f"{RPC_SERVER} listens on {wanted}" + (f", with {banner.listed(served)}" if served else ""))


def _diagnosis(journal: Sequence[str]) -> str:
    """Why it ended; of a device that is named and not there, with the first reason, such as CUDA's own."""
    said = reasons(journal)
    missing = [line.strip() for line in said if "unknown device" in line]
    if not missing:
        return telling(journal)
    quoted = '" and "'.join(dict.fromkeys((said[0].strip(), missing[0])))
    return f'its journal says "{quoted}"; {_WAY_OUT}'


def _too_few(lack: str, journal: Sequence[str]) -> str:
    said = reasons(journal)
    why = f'its journal says "{said[-1].strip()}"' if said else "its journal gives no reason"
    return f"{RPC_SERVER} {lack}: {why}; {_WAY_OUT}."


def _too_many(surplus: str, backend: str) -> str:
    """llama.cpp lends what it finds: integrated GPUs, whose memory is the processors', and those that its code is not for.

    Source: get_devices of tools/rpc/rpc-server.cpp; github.com/ggml-org/llama.cpp/issues/22013 and 28093.
    """
    # Seen by ROCm's libraries, such a GPU does harm even if it is not lent: github.com/ggml-org/llama.cpp/issues/23152.
    hide = ", and hide the others with HIP_VISIBLE_DEVICES in rpc_server_environment" if backend == "hip" else ""
    return f"{RPC_SERVER} {surplus}: see by deploys/preflight.py which are meant, and name those in rpc_server_devices{hide}."
