"""What a host shows of its PCI devices, however it was read: lspci and sysfs both end here. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum

_VENDORS = {"10de": "nvidia", "12d2": "nvidia", "1002": "amd", "8086": "intel"}
"""12d2: NVIDIA together with SGS, of which nvidia-detect 550.163.01 knows GPUs too."""
_NAMES = (
    (re.compile("nvidia", re.IGNORECASE), "nvidia"),
    # AMD's chipsets and processors are of vendor 1022, whose name has no ATI in it.
    (re.compile(r".*\bATI\b"), "amd"),
    (re.compile("Intel "), "intel"),
)

ALL_ONES = 63
"""The width of a link whose register reads all ones; no real link has so many lanes."""


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
    :param class_id: base class and subclass, 4 hexadecimal digits, e.g. 0300; None where a text
        without ids names a class that decides nothing here
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


def vendor(device: Device) -> str:
    """``nvidia``, ``amd`` (its GPUs, not its chipsets), ``intel`` or ``other``: by id, or by name in a text without ids."""
    if device.vendor_id:
        return _VENDORS.get(device.vendor_id, "other")
    return next((vendor for pattern, vendor in _NAMES if pattern.match(device.name)), "other")


def slot(address: str) -> str:
    """What the functions of one device have in common: domain:bus:device."""
    return address.rpartition(".")[0]


def with_parents(devices: Iterable[Device]) -> list[Device]:
    """The devices, each with the bridge above it, as the buses of the bridges tell; a parent that is known stays."""
    found = list(devices)
    spans = [(*_bus(bridge), *bridge.buses, bridge.address) for bridge in found if bridge.buses and not bridge.dead]
    return [device if device.parent else replace(device, parent=_parent(device, spans)) for device in found]


def _parent(device: Device, spans: Iterable[tuple[str, int, int, int, str]]) -> str | None:
    """:param spans: of each bridge its domain, its bus, its secondary and its subordinate bus, and its address"""
    domain, bus = _bus(device)
    # A bridge is on a bus before its secondary one, so that nothing comes to be above itself.
    holding = [
        (secondary, address)
        for there, own, secondary, subordinate, address in spans
        if there == domain and own < secondary <= bus <= subordinate
    ]
    return max(holding)[1] if holding else None


def _bus(device: Device) -> tuple[str, int]:
    domain, bus, _ = device.address.split(":")
    return domain, int(bus, 16)


def above(device: Device, devices: Mapping[str, Device]) -> list[Device]:
    """The bridges above a device that were seen, the nearest first.

    :param devices: by address
    """
    chain: list[Device] = []
    bridge = devices.get(device.parent or "")
    while bridge and bridge not in chain:
        chain.append(bridge)
        bridge = devices.get(bridge.parent or "")
    return chain


def merge(sysfs: Iterable[Device], lspci: Iterable[Device]) -> list[Device]:
    """The devices of one host, read in two ways, in the order of their addresses.

    What sysfs says counts, since it needs no root and wakes nothing. lspci adds what sysfs is silent on: names, kinds of ports,
    kernel modules, that something was denied or is dead; and devices that sysfs was not asked for.
    """
    found = {device.address: device for device in lspci}
    for device in sysfs:
        found[device.address] = combined(device, found[device.address]) if device.address in found else device
    return with_parents(found[address] for address in sorted(found))


def combined(first: Device, second: Device) -> Device:
    """What two readings say of one device; where both say something, the first counts."""
    silent = [field.name for field in fields(Device) if _says_nothing(getattr(first, field.name))]
    return replace(first, **{name: getattr(second, name) for name in silent})


def _says_nothing(value: object) -> bool:
    # Not simply falsehood: load and IOMMU group may well be 0.
    return value is None or value is False or value in ("", (), LinkState())
