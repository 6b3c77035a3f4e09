"""What has become of the plan after the reboot, and what is to be done next. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from roles.cluster.passthrough import FIRMWARE, VFIO, Function, goes_with, shared_group
from roles.cluster.provision import MachinePlan
from roles.gpus.catalog import Catalog
from roles.gpus.gpu import DISPLAY_CLASSES, gpus_of
from roles.gpus.link import Link, Verdict
from roles.gpus.pci import Device
from roles.passthrough.guest import hostdev, hostpci


def problems(machine: MachinePlan, devices: Sequence[Device]) -> list[str]:
    """What is not as planned, one sentence each.

    :param devices: what the host shows now
    """
    seen = {device.address: device for device in devices}
    found = []
    for function in machine.passthrough:
        device = seen.get(function.address)
        if device is None or (device.vendor_id, device.device_id) != (function.vendor_id, function.device_id):
            found.append(_gone(function, devices))
        elif device.driver not in (None, VFIO):
            found.append(
                f"{device.driver} holds {function.address}, which was to be bound to {VFIO} before any driver is loaded: run"
                " `update-initramfs -u -k all` there, reboot, and run again."
            )
        elif device.driver is None and device.iommu_group is None:
            found.append(f"the IOMMU is off, so that {function.address} cannot be passed through: {FIRMWARE}.")
        elif device.class_id in DISPLAY_CLASSES:
            found += [line for line in [shared_group(device, machine.passthrough, devices)] if line]
    found += [
        f"{VFIO} holds {gpu.address}, which is this host's own: look for what else binds it (`grep -r {VFIO} /etc/modprobe.d"
        " /etc/driverctl.d`), reboot, and run again."
        for gpu in machine.gpus
        if gpu.address in seen and seen[gpu.address].driver == VFIO
    ]
    return found


def report(machine: MachinePlan, devices: Sequence[Device], guests: Sequence[str], catalog: Catalog) -> Iterator[str]:
    """How each card that is passed through is, and what the definition of its virtual machine needs.

    :param devices: what the host shows now
    :param guests: the virtual machines of this host
    """
    before = {left.gpu.address: left.gpu.link for left in machine.left_out}
    ours = {function.address for function in machine.passthrough}
    whose = " or ".join(guests) or "its virtual machine"
    for gpu in gpus_of(devices, catalog):
        if gpu.address not in ours:
            continue
        card = next(device for device in devices if device.address == gpu.address)
        parts = [
            function
            for function in machine.passthrough
            if any(function.address == device.address and goes_with(device, card, devices) for device in devices)
        ]
        yield f"{gpu.address} is kept for {whose}: {gpu.driver or 'no driver'}, IOMMU group {gpu.iommu_group}."
        if link := _known(gpu.link) or _known(before.get(gpu.address)):
            yield f"{gpu.address} link {link.verdict}: {link.reason.rstrip('.')}."
        yield f"{gpu.address} for libvirt, among the <devices> of {whose}:"
        yield from (f"    {hostdev(function.address)}" for function in parts)
        yield (
            f"{gpu.address} for Proxmox, in the configuration of {whose} (whose machine is q35; if hostpci0 is taken,"
            " with the next number):"
        )
        yield from (f"    {line}" for line in hostpci(parts, devices))


def _known(link: Link | None) -> Link | None:
    """A card that no virtual machine uses sleeps, and its link is not read; before the reboot it may have been."""
    return link if link and link.verdict != Verdict.UNKNOWN else None


def _gone(function: Function, devices: Sequence[Device]) -> str:
    alike = [
        device.address for device in devices if (device.vendor_id, device.device_id) == (function.vendor_id, function.device_id)
    ]
    name = f"{function.vendor_id}:{function.device_id}"
    if alike:
        return f"{name} was at {function.address} and is at {' and '.join(alike)} now: correct `passthrough`, and run again."
    return f"{name} is not at {function.address} any more: look for the card, or correct `passthrough`, and run again."
