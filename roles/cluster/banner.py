"""What the RPC server says when it starts: the devices that it serves. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

# printf of ggml_backend_rpc_start_server (ggml/src/ggml-rpc/ggml-rpc.cpp), the same from e3a74b2 to 0c1e570.
_DEVICE = re.compile(r"\s*([A-Za-z_]+[0-9]*): (.*) \([0-9]+ MiB, [0-9]+ MiB free\)\s*")

END = "transport "
"""Beginning of the line after the last device."""

_BACKENDS = {"rocm": "hip"}
"""Beginning of a device's name → backend, where they differ."""


@dataclass(frozen=True)
class Device:
    """What a worker serves.

    :param name: llama.cpp's name for it, e.g. CUDA0
    :param description: the hardware, e.g. NVIDIA GeForce RTX 4080
    """

    name: str
    description: str

    @property
    def backend(self) -> str:
        """As the setting `backend` names it: ``ROCm1`` is hip's."""
        name = self.name.rstrip("0123456789").lower()
        return _BACKENDS.get(name, name)

    def __str__(self) -> str:
        return f"{self.name} ({self.description})"


def devices(lines: Sequence[str]) -> tuple[Device, ...]:
    """The devices that it serves; empty until it has named all of them, between which it may take its time.

    :param lines: its output, or the journal of its last start
    """
    said = [line.strip() for line in lines]
    if "Devices:" not in said:
        return ()
    after = len(said) - said[::-1].index("Devices:")
    if not any(line.startswith(END) for line in said[after:]):
        return ()
    return tuple(Device(found[1], found[2]) for line in said[after:] if (found := _DEVICE.fullmatch(line)))


def lacks(devices: Sequence[Device], backend: str, gpus: int) -> str:
    """In which way it serves less than it must, while it does serve something; empty where it does not, or nobody knows.

    :param backend: what it must compute with, empty where nobody knows
    :param gpus: how many devices of that it must serve; 0: any number from 1 on
    """
    found = sum(device.backend == backend for device in devices)
    if not devices or not backend or found >= max(gpus, 1):
        return ""
    if found:
        return f"serves {listed(devices)}, and {gpus} GPUs are to compute"
    return f"serves {listed(devices)}, and no device of the backend {backend} that is planned"


def exceeds(devices: Sequence[Device], gpus: int) -> str:
    """In which way it serves more than it may; empty where it does not.

    :param gpus: how many devices it may serve; 0: any number
    """
    if not 0 < gpus < len(devices):
        return ""
    return f"serves {listed(devices)}, and {gpus} GPU{' is' if gpus == 1 else 's are'} to compute"


def listed(devices: Sequence[Device]) -> str:
    """Several of them in a sentence."""
    return ", ".join(map(str, devices))
