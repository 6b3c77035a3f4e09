"""One GPU: what it is by the catalog, and how its link is. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from roles.gpus.catalog import Catalog
from roles.gpus.link import Link
from roles.gpus.pci import Device


@dataclass(frozen=True)
class Gpu:
    """A GPU that was seen or declared.

    :param address: domain:bus:device.function; None for one that was only declared
    :param vendor: nvidia, amd, intel, or other
    :param name: vendor and device in words, as lspci names it
    :param device_id: vendor:device, e.g. 10de:1b06; None where it is not known
    :param chip: without its mobile suffix, e.g. GP102; None where it is not known
    :param generation: a key of the catalog; None where the catalog does not know it
    :param compute_capability: NVIDIA's, e.g. 6.1
    :param gfx_target: AMD's, e.g. gfx1100
    :param integrated: it shares the memory of the processor
    :param driver: the kernel driver that holds it
    :param modules: the kernel modules that could
    :param link: None for one that was only declared
    :param memory_mib: its memory in MiB, where its driver says so
    :param iommu_group: None where the IOMMU is off, or not known
    :param iommu_neighbours: addresses of devices in its group that are not functions of the card itself, nor bridges
    :param notes: what is to be known of it beside its link, one sentence each
    """

    address: str | None
    vendor: str
    name: str
    device_id: str | None
    chip: str | None
    generation: str | None
    compute_capability: str | None = None
    gfx_target: str | None = None
    integrated: bool = False
    driver: str | None = None
    modules: tuple[str, ...] = ()
    link: Link | None = None
    memory_mib: int | None = None
    iommu_group: int | None = None
    iommu_neighbours: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def gpus_of(devices: Iterable[Device], catalog: Catalog) -> list[Gpu]:
    """The GPUs among the devices of a host, in the order of their addresses."""
    raise NotImplementedError


def declared(text: str, catalog: Catalog) -> Gpu:
    """A GPU that cannot be seen yet.

    :param text: what lspci prints of it, or a part of that which holds its id or its chip, e.g. ``10de:1b06`` or ``GP102``
    :raises ValueError: the text names no GPU that the catalog knows
    """
    raise NotImplementedError
