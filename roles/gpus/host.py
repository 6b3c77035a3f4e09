"""The GPUs of one host, from all that was read of it. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from roles.gpus.catalog import Catalog
from roles.gpus.driver import Drivers, NvidiaGpu
from roles.gpus.gpu import Gpu, gpus_of
from roles.gpus.link import UNDER_LOAD, judge
from roles.gpus.pci import Device, LinkState, merge

NVIDIA_SMI = "nvidia-smi"
"""Where a link was measured that PCI does not show."""

WORKING = 2
"""The slowest performance state in which an NVIDIA GPU is at work."""

GTS = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0, 7: 128.0}
"""PCI Express generation → GT/s per lane."""


def see(pci: Iterable[Device], lspci: Iterable[Device], drivers: Drivers, catalog: Catalog) -> list[Gpu]:
    """The GPUs, in the order of their addresses.

    :param pci: what sysfs shows
    :param lspci: what lspci says
    """
    said = drivers.nvidia.gpus
    devices = [_with_load(device, said.get(device.address)) for device in merge(pci, lspci)]
    gpus = {gpu.address: gpu for gpu in gpus_of(devices, catalog)}
    return [_complete(gpus[device.address], device, said.get(device.address)) for device in devices if device.address in gpus]


def _with_load(device: Device, said: NvidiaGpu | None) -> Device:
    """Under load is also what computes in short bursts between which its utilisation reads 0."""
    if said is None:
        return device
    working = said.performance is not None and said.performance <= WORKING
    return replace(device, load_percent=max(said.load_percent or 0, UNDER_LOAD) if working else said.load_percent)


def _complete(gpu: Gpu, device: Device, said: NvidiaGpu | None) -> Gpu:
    """The GPU with what only its driver knows."""
    if said is None:
        return replace(gpu, memory_mib=device.memory_mib)
    gpu = replace(gpu, memory_mib=said.memory_mib, compute_capability=gpu.compute_capability or said.compute_capability)
    link = _link(said)
    if device.link or device.dead or device.asleep or link.width is None:
        return gpu
    # A guest: the ports that it sees are not those of the slot, so that the card is judged without them.
    return replace(gpu, link=replace(judge(replace(device, link=link), {}), measured_at=NVIDIA_SMI))


def _link(said: NvidiaGpu) -> LinkState:
    return LinkState(
        width=said.width,
        max_width=said.max_width,
        speed_gts=GTS.get(said.generation or 0),
        max_speed_gts=GTS.get(said.max_generation or 0),
    )
