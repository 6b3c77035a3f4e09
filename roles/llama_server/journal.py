"""Why a head ended, from its journal. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from roles.base.sight import telling

_UNREACHABLE = re.compile(r"(?:Failed to connect to|no worker answers at) (\S+)")
_MISMATCH = re.compile(r"RPC server version mismatch: (\S+)")
# ggml_cuda_init, also of ROCm, and ggml_sycl_init, the same from e3a74b2 to 0c1e570; the devices it lists at a higher verbosity.
_WITHOUT_GPU = re.compile(r"ggml_cuda_init: failed to initialize|SYCL: failed to initialize")
_CRASHED = "Remote RPC server crashed or returned malformed response"


def without_gpu(lines: Sequence[str]) -> str:
    """What it says of GPUs of its own that it cannot use, which is no error to it; empty where it says nothing, as with Vulkan.

    :param lines: the journal of one start
    """
    return next((line.strip() for line in lines if _WITHOUT_GPU.search(line)), "")


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
