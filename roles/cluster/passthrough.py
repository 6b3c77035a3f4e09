"""Which PCI functions of a host are to belong to virtual machines, and what speaks against it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from roles.cluster.remarks import Remarks
from roles.cluster.settings import Settings
from roles.gpus.gpu import DISPLAY_CLASSES
from roles.gpus.link import upstream_port
from roles.gpus.pci import Device, above, slot

VFIO = "vfio-pci"

FIRMWARE = "switch on VT-d (Intel) or AMD-Vi (AMD), which it may call IOMMU, in the firmware's setup, and run again"

_ENTRY = re.compile(r"(?P<address>[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])/[0-9a-f]{4}:[0-9a-f]{4}")
_OF_A_CARD = ("03", "04", "0c")
"""Base classes of what graphics cards have: display, sound, USB. Storage and network are taken from no host."""
_KINDS = {"01": "storage", "02": "network", "03": "display", "04": "sound", "0c03": "USB", "0c05": "SMBus"}


@dataclass(frozen=True)
class Function:
    """A PCI function that is to be bound to vfio-pci.

    Address and ids together, because addresses move when a card is added: another device that has come to the address must
    never be taken from its driver.

    :param address: domain:bus:device.function, e.g. 0000:0e:00.0
    :param vendor_id: 4 hexadecimal digits
    :param device_id: likewise
    :param iommu_group: None where the IOMMU is off
    :param driver: the kernel driver that holds it now
    """

    address: str
    vendor_id: str
    device_id: str
    iommu_group: int | None = None
    driver: str | None = None

    @property
    def entry(self) -> str:
        """What the kernel's argument says of it, see `roles.gpus.driver.PASSTHROUGH`."""
        return f"{self.address}/{self.vendor_id}:{self.device_id}"


@dataclass(frozen=True)
class Passthrough:
    """What is passed through on one host.

    :param functions: what is to be bound: the cards that `passthrough` names, with all that goes with them
    :param absent: entries of the running kernel's argument whose card is named and is not seen: they do no harm, and the card
        may come back
    :param returned: addresses of what that argument keeps from other drivers and `passthrough` does not name any more
    """

    functions: tuple[Function, ...] = ()
    absent: tuple[str, ...] = ()
    returned: tuple[str, ...] = ()


def plan_passthrough(devices: Sequence[Device], booted: Iterable[str], settings: Settings, remarks: Remarks) -> Passthrough:
    """Choose the functions, and say what is to be done and what speaks against it.

    :param devices: cards with all their functions, the bridges above them, and what shares their IOMMU groups
    :param booted: what the running kernel's argument names, each as address/vendor:device
    """
    entries = {found["address"]: found[0] for entry in booted if (found := _ENTRY.fullmatch(entry))}
    cards = [device for device in devices if device.address in settings.passthrough and device.class_id in DISPLAY_CLASSES]
    functions = tuple(_function(device) for device in devices if any(goes_with(device, card, devices) for card in cards))
    named = {slot(address) for address in settings.passthrough}
    seen = {slot(function.address) for function in functions}
    returned = tuple(
        device.address
        for device in devices
        if entries.get(device.address) == _function(device).entry and slot(device.address) not in named | seen
        # Without an IOMMU nothing holds it, and no other driver may.
        if device.driver in (None, VFIO)
    )
    _say_unseen(settings.passthrough, cards, devices, entries, remarks)
    remarks.refusals += [line for card in cards if (line := shared_group(card, functions, devices))]
    _say_steps(functions, returned, entries, remarks)
    absent = tuple(entry for address, entry in entries.items() if slot(address) in named - seen)
    return Passthrough(functions, absent, returned)


def goes_with(device: Device, card: Device, devices: Iterable[Device]) -> bool:
    """Whether a function is a part of a card and goes to a virtual machine with it.

    What is in a group of its own may stay with the host: the functions of a processor that has graphics share a slot with it.
    """
    if (device.class_id or "")[:2] not in _OF_A_CARD or device.iommu_group != card.iommu_group:
        return False
    seen = {other.address: other for other in devices}
    upstream = upstream_port(card, seen)
    return slot(device.address) == slot(card.address) or bool(upstream and upstream in above(device, seen))


def shared_group(card: Device, functions: Iterable[Function], devices: Iterable[Device]) -> str:
    """Why a card cannot be passed through because of its IOMMU group; empty where it can.

    Bridges stay with the host, and what vfio-pci holds already is no obstacle (vfio_dev_viable in drivers/vfio/vfio_main.c).

    :param functions: all that is to be bound
    """
    ours = {function.address for function in functions}
    strangers = [
        device
        for device in devices
        if device.iommu_group == card.iommu_group is not None
        if device.address not in ours and device.driver != VFIO and not (device.class_id or "").startswith("06")
    ]
    if not strangers:
        return ""
    others = " and ".join(_described(device) for device in strangers)
    displays = [device.address for device in strangers if device.class_id in DISPLAY_CLASSES]
    too = f"name {' and '.join(displays)} in `passthrough` too, " if displays else ""
    return (
        f"{card.address} shares IOMMU group {card.iommu_group} with {others}, and a group goes to one virtual machine as a whole:"
        f" {too}put one of them into another slot, or switch on ACS in the firmware's setup."
    )


def _function(device: Device) -> Function:
    return Function(device.address, device.vendor_id or "", device.device_id or "", device.iommu_group, device.driver)


def _described(device: Device) -> str:
    class_id = device.class_id or ""
    kind = _KINDS.get(class_id, _KINDS.get(class_id[:2], "device"))
    held = f", driver {device.driver}" if device.driver else ""
    return f"{device.address} ({kind} {device.vendor_id}:{device.device_id}{held})"


def _say_unseen(
    addresses: Iterable[str], cards: Iterable[Device], devices: Iterable[Device], entries: dict[str, str], remarks: Remarks
) -> None:
    found = {card.address for card in cards}
    for address in addresses:
        if address in found:
            continue
        alike = [
            device.address
            for device in devices
            if device.class_id in DISPLAY_CLASSES and device.address not in addresses
            if entries.get(address) == f"{address}/{device.vendor_id}:{device.device_id}"
        ]
        moved = f" (a card like the one that was there is at {' and '.join(alike)} now)" if alike else ""
        remarks.warnings.append(
            f"passthrough names {address}, and no GPU is seen there{moved}: correct it, or look for the card."
        )


def _say_steps(functions: Sequence[Function], returned: Sequence[str], entries: dict[str, str], remarks: Remarks) -> None:
    """:param entries: what the running kernel was told to bind, by address"""
    unbound = [function for function in functions if function.driver != VFIO]
    # vfio-pci binds nothing that is in no group.
    dark = [function for function in unbound if function.iommu_group is None]
    if dark and any(function.address in entries for function in dark):
        remarks.refusals.append(
            f"the IOMMU is off, although the kernel was told to use it for {_addresses(dark)}: {FIRMWARE}, or leave `passthrough`"
            " out."
        )
    elif dark:
        remarks.steps.append("switch the IOMMU on; what shares a group with the card is seen after the reboot")
        remarks.reboots.append(f"the IOMMU is off, and {_addresses(dark)} cannot be passed through without it")
    if unbound:
        remarks.steps.append(f"bind {_addresses(unbound)} to {VFIO}")
    # What no driver holds, a virtual machine's start binds.
    held = [f"{function.driver} holds {function.address}" for function in unbound if function.driver]
    if held:
        remarks.reboots.append(f"{' and '.join(held)}, which {'is' if len(held) == 1 else 'are'} to be bound to {VFIO}")
    if returned:
        addresses = " and ".join(returned)
        remarks.steps.append(f"give {addresses} back to the host")
        remarks.reboots.append(f"the kernel keeps {addresses} for {VFIO}, and `passthrough` does not name that any more")


def _addresses(functions: Iterable[Function]) -> str:
    return " and ".join(function.address for function in functions)
