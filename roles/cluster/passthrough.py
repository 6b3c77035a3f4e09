"""Which PCI functions of a host are to belong to virtual machines. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from roles.cluster.remarks import Remarks
from roles.cluster.settings import Settings
from roles.gpus.pci import Device, slot


@dataclass(frozen=True)
class Function:
    """A PCI function that is to be bound to vfio-pci.

    Address and ids together, because addresses move when a card is added: another device that has come to an address must
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


def plan_passthrough(devices: Sequence[Device], settings: Settings, remarks: Remarks) -> tuple[Function, ...]:
    """The functions of the cards that `passthrough` names."""
    slots = {slot(address) for address in settings.passthrough}
    return tuple(
        Function(device.address, device.vendor_id or "", device.device_id or "", device.iommu_group, device.driver)
        for device in devices
        if slot(device.address) in slots
    )
