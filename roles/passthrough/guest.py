"""What the definition of a virtual machine needs to have a card. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from roles.cluster.passthrough import Function
from roles.gpus.pci import Device, slot


def hostdev(address: str) -> str:
    """A function for libvirt: an element of a domain's ``<devices>`` (https://libvirt.org/formatdomain.html)."""
    domain, bus, rest = address.split(":")
    device, _, function = rest.partition(".")
    where = f"domain='0x{domain}' bus='0x{bus}' slot='0x{device}' function='0x{function}'"
    return f"<hostdev mode='subsystem' type='pci' managed='yes'><source><address {where}/></source></hostdev>"


def hostpci(functions: Sequence[Function], devices: Sequence[Device]) -> list[str]:
    """Functions for Proxmox: lines of ``/etc/pve/qemu-server/ID.conf``; a slot that goes as a whole is one line (qm.conf(5)).

    :param devices: what is in the slots beside them
    """
    ours = [function.address for function in functions]
    slots = dict.fromkeys(map(slot, ours))
    names: list[str] = []
    for name in slots:
        there = [device.address for device in devices if slot(device.address) == name]
        names += [name] if set(there) <= set(ours) else [address for address in ours if slot(address) == name]
    return [f"hostpci{number}: {name},pcie=1" for number, name in enumerate(names)]
