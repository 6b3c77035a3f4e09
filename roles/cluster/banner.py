"""What the RPC server says when it starts: the devices that it serves. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

# printf of ggml_backend_rpc_start_server (ggml/src/ggml-rpc/ggml-rpc.cpp), the same from e3a74b2 to 0c1e570.
_DEVICE = re.compile(r"\s*([A-Za-z_]+[0-9]*): .* \([0-9]+ MiB, [0-9]+ MiB free\)\s*")

_BACKENDS = {"rocm": "hip"}
"""Beginning of a device's name → backend, where they differ."""


def devices(lines: Sequence[str]) -> tuple[str, ...]:
    """The devices that it serves, as llama.cpp names them, e.g. ``CUDA0``; empty until it has named them.

    :param lines: its output, or the journal of its last start
    """
    said = [line.strip() for line in lines]
    if "Devices:" not in said:
        return ()
    after = len(said) - said[::-1].index("Devices:")
    return tuple(found[1] for line in said[after:] if (found := _DEVICE.fullmatch(line)))


def lacks(devices: Sequence[str], wanted: str) -> bool:
    """Whether it serves nothing of the backend that it must, while it does serve something.

    :param wanted: empty where nobody knows
    """
    return bool(devices and wanted) and wanted not in map(backend, devices)


def backend(device: str) -> str:
    """The backend of a device, as the setting `backend` names it: ``ROCm1`` is hip's."""
    name = device.rstrip("0123456789").lower()
    return _BACKENDS.get(name, name)
