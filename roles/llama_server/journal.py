"""Why a head ended, from its journal. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from roles.base.sight import telling
from roles.cluster.banner import Device

_UNREACHABLE = re.compile(r"(?:Failed to connect to|no worker answers at) (\S+)")
_MISMATCH = re.compile(r"RPC server version mismatch: (\S+)")
# COM_TRC of common_params_print_info (common/common.cpp), before it the time since the start.
_DEVICE = re.compile(r"  - (\w+) *: (.*) \([0-9]+ MiB, [0-9]+ MiB free\)$")
_CRASHED = "Remote RPC server crashed or returned malformed response"


def devices(lines: Sequence[str]) -> tuple[Device, ...]:
    """The devices that it has found: its own, such as ``CUDA0`` and ``CPU``, and its workers', such as ``RPC0``.

    :param lines: the journal of one start
    """
    return tuple(Device(found[1], found[2]) for line in lines if (found := _DEVICE.search(line.rstrip())))


def diagnosis(lines: Sequence[str], endpoints: Sequence[str]) -> str:
    """The reason in one sentence without a full stop; a worker's fault names the worker.

    :param lines: the journal of the starts in question
    :param endpoints: the head's workers, ``address:port``
    """
    text = "\n".join(lines)
    mismatch = _MISMATCH.findall(text)
    if mismatch:
        return (
            f"a worker of {', '.join(endpoints)} speaks RPC protocol {mismatch[-1]}, which is not the head's:"
            " it runs another release"
        )
    unreachable = _UNREACHABLE.findall(text)
    if unreachable:
        return f"no connection to its worker {unreachable[-1].rstrip('.,:;')}: see whether rpc-server.service runs there"
    if _CRASHED in text:
        return (
            f"one of its workers ({', '.join(endpoints)}) ended or sent nonsense: the journal of rpc-server.service there"
            f' says why ("{_CRASHED}")'
        )
    return f'its journal says "{telling(lines)}"'
