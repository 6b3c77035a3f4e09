"""What is said after the reboot: what is not as planned, and what the virtual machines need."""

from __future__ import annotations

from dataclasses import replace

import pytest

from roles.cluster.backend import BOUND, LeftOut
from roles.cluster.passthrough import Function
from roles.cluster.provision import MachinePlan
from roles.gpus.catalog import load
from roles.gpus.gpu import gpus_of
from roles.gpus.pci import Device, LinkState, Port
from roles.passthrough.guest import hostdev, hostpci
from roles.passthrough.outcome import problems, report

PORT = Device("0000:00:01.0", "0604", port=Port.ROOT, link=LinkState(16, 16, 8.0, 8.0), buses=(14, 14))
CARD = Device(
    *("0000:0e:00.0", "0300", "GP102"),
    vendor_id="10de",
    device_id="1b06",
    driver="vfio-pci",
    iommu_group=14,
    parent="0000:00:01.0",
    link=LinkState(4, 16, 2.5, 8.0),
)
SOUND = Device("0000:0e:00.1", "0403", vendor_id="10de", device_id="10ef", driver="vfio-pci", iommu_group=14)
FUNCTIONS = tuple(
    Function(device.address, device.vendor_id or "", device.device_id or "", device.iommu_group, "nouveau")
    for device in (CARD, SOUND)
)
PLAN = MachinePlan(passthrough=FUNCTIONS)


def test_what_is_bound_or_free_is_as_planned() -> None:
    assert problems(PLAN, [PORT, CARD, SOUND]) == []
    assert problems(PLAN, [PORT, CARD, replace(SOUND, driver=None)]) == []
    assert problems(MachinePlan(), [PORT, CARD, SOUND]) == []


@pytest.mark.parametrize(
    ("devices", "sentence"),
    [
        (
            [replace(CARD, driver="nouveau"), SOUND],
            "nouveau holds 0000:0e:00.0, which was to be bound to vfio-pci before any driver is loaded: run `update-initramfs -u"
            " -k all` there, reboot, and run again.",
        ),
        (
            [replace(CARD, driver=None, iommu_group=None), SOUND],
            "the IOMMU is off, so that 0000:0e:00.0 cannot be passed through: switch on VT-d (Intel) or AMD-Vi (AMD), which it"
            " may call IOMMU, in the firmware's setup, and run again.",
        ),
        (
            [CARD, SOUND, Device("0000:0f:00.0", "0108", vendor_id="144d", device_id="a808", driver="nvme", iommu_group=14)],
            "0000:0e:00.0 shares IOMMU group 14 with 0000:0f:00.0 (storage 144d:a808, driver nvme), and a group goes to one"
            " virtual machine as a whole: put one of them into another slot, or switch on ACS in the firmware's setup.",
        ),
        (
            [replace(CARD, address="0000:0f:00.0"), SOUND],
            "10de:1b06 was at 0000:0e:00.0 and is at 0000:0f:00.0 now: correct `passthrough`, and run again.",
        ),
        (
            [replace(CARD, device_id="2204"), SOUND],
            "10de:1b06 is not at 0000:0e:00.0 any more: look for the card, or correct `passthrough`, and run again.",
        ),
    ],
)
def test_what_is_not_as_planned_is_said_with_what_to_do(devices: list[Device], sentence: str) -> None:
    assert problems(PLAN, devices) == [sentence]


def test_a_card_of_the_host_must_not_be_bound() -> None:
    own = MachinePlan(gpus=tuple(gpus_of([CARD], load())))
    (sentence,) = problems(own, [CARD])
    assert sentence.startswith("vfio-pci holds 0000:0e:00.0, which is this host's own: look for what else binds it")
    assert problems(own, [replace(CARD, driver="nvidia")]) == []


def test_the_virtual_machine_is_told_how_to_have_the_card() -> None:
    assert list(report(PLAN, [PORT, CARD, SOUND], ["gpu-1080ti"], load())) == [
        "0000:0e:00.0 is kept for gpu-1080ti: vfio-pci, IOMMU group 14.",
        "0000:0e:00.0 link narrow: 4 of 16 lanes at 0000:0e:00.0: 11.8 GB/s are lost.",
        "0000:0e:00.0 for libvirt, among the <devices> of gpu-1080ti:",
        "    <hostdev mode='subsystem' type='pci' managed='yes'><source>"
        "<address domain='0x0000' bus='0x0e' slot='0x00' function='0x0'/></source></hostdev>",
        "    <hostdev mode='subsystem' type='pci' managed='yes'><source>"
        "<address domain='0x0000' bus='0x0e' slot='0x00' function='0x1'/></source></hostdev>",
        "0000:0e:00.0 for Proxmox, in the configuration of gpu-1080ti (whose machine is q35; if hostpci0 is taken, with the next"
        " number):",
        "    hostpci0: 0000:0e:00,pcie=1",
    ]


def test_the_link_of_a_card_that_sleeps_is_the_one_that_was_seen_before() -> None:
    (before,) = gpus_of([PORT, CARD], load())[-1:]
    plan = MachinePlan(passthrough=FUNCTIONS, left_out=(LeftOut(before, BOUND),))
    lines = list(report(plan, [PORT, replace(CARD, asleep=True, link=None), SOUND], [], load()))
    assert lines[1].startswith("0000:0e:00.0 link narrow")
    assert lines[0] == "0000:0e:00.0 is kept for its virtual machine: vfio-pci, IOMMU group 14."


def test_a_card_that_is_dead_is_said_to_be() -> None:
    dead = replace(CARD, dead=True, link=None)
    assert any("link unreachable" in line for line in report(PLAN, [PORT, dead, SOUND], [], load()))


def test_a_slot_that_does_not_go_as_a_whole_is_named_function_by_function() -> None:
    usb = Device("0000:0e:00.3", "0c03")
    assert hostpci(FUNCTIONS, [CARD, SOUND, usb]) == ["hostpci0: 0000:0e:00.0,pcie=1", "hostpci1: 0000:0e:00.1,pcie=1"]


def test_an_address_is_taken_apart_for_libvirt() -> None:
    assert "<address domain='0x0001' bus='0x83' slot='0x1f' function='0x7'/>" in hostdev("0001:83:1f.7")
