"""What a host shows of its PCI devices, however it was read: lspci and sysfs both end here. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Port(StrEnum):
    """What a PCI Express device is on its link, as its Express capability says."""

    ENDPOINT = "endpoint"
    INTEGRATED = "integrated"
    ROOT = "root"
    UPSTREAM = "upstream"
    DOWNSTREAM = "downstream"
    BRIDGE = "bridge"


@dataclass(frozen=True)
class LinkState:
    """A PCI Express link as one of its two ends shows it.

    :param width: lanes in use
    :param max_width: lanes that this end can
    :param speed_gts: GT/s per lane now; None where the host says that it does not know
    :param max_speed_gts: GT/s per lane that this end can
    """

    width: int | None = None
    max_width: int | None = None
    speed_gts: float | None = None
    max_speed_gts: float | None = None


@dataclass(frozen=True)
class Device:
    """One PCI function.

    :param address: domain:bus:device.function, e.g. 0000:0e:00.0
    :param class_id: base class and subclass, 4 hexadecimal digits, e.g. 0300; None in a text without ids
    :param name: vendor and device in words, without class, ids and revision; empty where only sysfs was read
    :param vendor_id: 4 hexadecimal digits; None in a text without ids
    :param device_id: likewise
    :param driver: the kernel driver that holds it
    :param modules: the kernel modules that could
    :param port: None where it is not known (not root, or no PCI Express capability)
    :param link: None where nothing is seen of one
    :param denied: its capabilities could not be read, because the reader was not root
    :param dead: its configuration space reads all ones
    :param asleep: it is suspended, and was not woken to be read
    :param windows: the sizes of its memory windows (BARs) in MiB, by number
    :param buses: a bridge's secondary and subordinate bus
    :param parent: address of the bridge above; None where it is on a root bus, or not known
    :param iommu_group: None where the IOMMU is off, or not known
    :param load_percent: how busy it is, 0 to 100; None where nothing says so
    :param memory_mib: its own memory in MiB, where the kernel says so (amdgpu)
    """

    address: str
    class_id: str | None = None
    name: str = ""
    vendor_id: str | None = None
    device_id: str | None = None
    driver: str | None = None
    modules: tuple[str, ...] = ()
    port: Port | None = None
    link: LinkState | None = None
    denied: bool = False
    dead: bool = False
    asleep: bool = False
    windows: tuple[tuple[int, float], ...] = ()
    buses: tuple[int, int] | None = None
    parent: str | None = None
    iommu_group: int | None = None
    load_percent: int | None = None
    memory_mib: int | None = None
