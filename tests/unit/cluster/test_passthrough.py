"""Which functions are passed through, what their groups allow, and when a reboot is owed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roles.cluster.passthrough import Passthrough, plan_passthrough
from roles.cluster.remarks import Remarks
from roles.cluster.settings import Settings
from roles.gpus.pci import Device
from tests.unit.cluster.examples import NETWORK, NEWER, PASCAL, gpu_worker, gpus, head, loaded, plan_of

CARD = Device("0000:0e:00.0", "0300", vendor_id="10de", device_id="1b06", driver="nouveau", iommu_group=14)
SOUND = Device("0000:0e:00.1", "0403", vendor_id="10de", device_id="10ef", driver="snd_hda_intel", iommu_group=14)
PORT = Device("0000:00:01.0", "0604", vendor_id="8086", device_id="1901", driver="pcieport", iommu_group=14)
DISK = Device("0000:0f:00.0", "0108", vendor_id="144d", device_id="a808", driver="nvme", iommu_group=14)
TWIN = replace(CARD, address="0000:0f:00.0", iommu_group=15)
ENTRIES = ("0000:0e:00.0/10de:1b06", "0000:0e:00.1/10de:10ef")


def bound(*devices: Device) -> list[Device]:
    return [replace(device, driver="vfio-pci") for device in devices]


def dark(*devices: Device) -> list[Device]:
    """Without an IOMMU."""
    return [replace(device, iommu_group=None) for device in devices]


def planned(devices: Sequence[Device], *addresses: str, booted: Sequence[str] = ()) -> tuple[Passthrough, Remarks]:
    remarks = Remarks()
    settings = Settings(commit=NEWER, network=NETWORK, passthrough=list(addresses))
    return plan_passthrough(devices, booted, settings, remarks), remarks


def addresses(found: Passthrough) -> list[str]:
    return [function.address for function in found.functions]


def test_a_card_goes_with_all_its_functions_and_leaves_the_port_above_it() -> None:
    found, remarks = planned([PORT, CARD, SOUND, replace(TWIN, iommu_group=15)], "0e:00.0")
    assert addresses(found) == ["0000:0e:00.0", "0000:0e:00.1"]
    assert [function.entry for function in found.functions] == list(ENTRIES)
    assert remarks == Remarks(
        steps=["bind 0000:0e:00.0 and 0000:0e:00.1 to vfio-pci"],
        reboots=["nouveau holds 0000:0e:00.0 and snd_hda_intel holds 0000:0e:00.1, which are to be bound to vfio-pci"],
    )


def test_nothing_is_owed_once_it_is_bound() -> None:
    found, remarks = planned([PORT, *bound(CARD, SOUND)], "0e:00.0", booted=ENTRIES)
    assert addresses(found) == ["0000:0e:00.0", "0000:0e:00.1"]
    assert remarks == Remarks()


def test_what_no_driver_holds_needs_no_reboot() -> None:
    _, remarks = planned([replace(CARD, driver=None)], "0e:00.0")
    assert remarks == Remarks(steps=["bind 0000:0e:00.0 to vfio-pci"])


def test_a_group_with_strangers_is_refused_with_their_list() -> None:
    network = Device("0000:10:00.0", "0200", vendor_id="8086", device_id="15f3", iommu_group=14)
    _, remarks = planned([PORT, CARD, SOUND, DISK, network], "0e:00.0")
    assert remarks.refusals == [
        "0000:0e:00.0 shares IOMMU group 14 with 0000:0f:00.0 (storage 144d:a808, driver nvme) and 0000:10:00.0 (network"
        " 8086:15f3), and a group goes to one virtual machine as a whole: put one of them into another slot, or switch on ACS in"
        " the firmware's setup."
    ]


def test_two_cards_of_one_group_go_together() -> None:
    pair = [CARD, SOUND, replace(TWIN, iommu_group=14)]
    _, remarks = planned(pair, "0e:00.0")
    assert remarks.refusals == [
        "0000:0e:00.0 shares IOMMU group 14 with 0000:0f:00.0 (display 10de:1b06, driver nouveau), and a group goes to one"
        " virtual machine as a whole: name 0000:0f:00.0 in `passthrough` too, put one of them into another slot, or switch on ACS"
        " in the firmware's setup."
    ]
    found, remarks = planned(pair, "0e:00.0", "0f:00.0")
    assert remarks.refusals == []
    assert addresses(found) == ["0000:0e:00.0", "0000:0e:00.1", "0000:0f:00.0"]


def test_what_vfio_holds_already_is_no_stranger() -> None:
    _, remarks = planned([CARD, SOUND, *bound(DISK)], "0e:00.0")
    assert remarks.refusals == []


@pytest.mark.parametrize("class_id", ["0108", "0200", "0604", "0580"])
def test_no_host_loses_its_disk_or_its_network(class_id: str) -> None:
    other = replace(SOUND, class_id=class_id, driver="other")
    found, _ = planned([CARD, other], "0e:00.0")
    assert addresses(found) == ["0000:0e:00.0"]


def test_what_a_processor_has_beside_its_graphics_stays_where_it_is_in_a_group_of_its_own() -> None:
    usb = replace(SOUND, address="0000:0e:00.3", class_id="0c03", driver="xhci_hcd", iommu_group=17)
    found, remarks = planned([CARD, SOUND, usb], "0e:00.0")
    assert addresses(found) == ["0000:0e:00.0", "0000:0e:00.1"]
    assert remarks.refusals == []


def test_sound_behind_the_cards_own_bridges_goes_with_it() -> None:
    up = Device("0000:03:00.0", "0604", vendor_id="8086", device_id="4fa0", iommu_group=14)
    down = [
        Device(f"0000:04:0{number}.0", "0604", vendor_id="8086", device_id="4fa4", iommu_group=14, parent=up.address)
        for number in (1, 4)
    ]
    arc = Device("0000:05:00.0", "0300", vendor_id="8086", device_id="56a0", iommu_group=14, parent=down[0].address)
    sound = Device("0000:06:00.0", "0403", vendor_id="8086", device_id="4f90", iommu_group=14, parent=down[1].address)
    found, remarks = planned([up, *down, arc, sound], "05:00.0")
    assert addresses(found) == ["0000:05:00.0", "0000:06:00.0"]
    assert remarks.refusals == []


def test_without_an_iommu_the_group_is_seen_after_the_reboot() -> None:
    found, remarks = planned(dark(CARD, SOUND), "0e:00.0")
    assert addresses(found) == ["0000:0e:00.0", "0000:0e:00.1"]
    assert remarks.steps[0] == "switch the IOMMU on; what shares a group with the card is seen after the reboot"
    assert remarks.reboots[0] == "the IOMMU is off, and 0000:0e:00.0 and 0000:0e:00.1 cannot be passed through without it"


def test_an_iommu_that_stays_off_is_the_firmwares_and_no_reboot_helps() -> None:
    _, remarks = planned(dark(replace(CARD, driver=None)), "0e:00.0", booted=ENTRIES)
    assert remarks.reboots == []
    assert remarks.refusals == [
        "the IOMMU is off, although the kernel was told to use it for 0000:0e:00.0: switch on VT-d (Intel) or AMD-Vi (AMD), which"
        " it may call IOMMU, in the firmware's setup, and run again, or leave `passthrough` out."
    ]


@pytest.mark.parametrize(
    "devices", [bound(CARD, SOUND), dark(replace(CARD, driver=None), replace(SOUND, driver=None))], ids=["bound", "no IOMMU"]
)
def test_what_is_not_named_any_more_is_given_back(devices: list[Device]) -> None:
    found, remarks = planned(devices, booted=ENTRIES)
    assert found == Passthrough(returned=("0000:0e:00.0", "0000:0e:00.1"))
    assert remarks == Remarks(
        steps=["give 0000:0e:00.0 and 0000:0e:00.1 back to the host"],
        reboots=["the kernel keeps 0000:0e:00.0 and 0000:0e:00.1 for vfio-pci, and `passthrough` does not name that any more"],
    )


@pytest.mark.parametrize(
    ("devices", "booted"),
    [
        (bound(CARD, SOUND), ()),
        ([CARD, SOUND], ENTRIES),
        (bound(replace(DISK, address=CARD.address)), ENTRIES),
        ([], ENTRIES),
        (bound(CARD), ("", "nonsense", "0000:0e:00.0", "0000:0e:00.0/10de")),
    ],
)
def test_nothing_is_given_back_that_we_do_not_hold(devices: list[Device], booted: Sequence[str]) -> None:
    assert planned(devices, booted=booted) == (Passthrough(), Remarks())


def test_a_card_that_is_not_seen_keeps_its_place_for_the_day_it_comes_back() -> None:
    found, remarks = planned([DISK], "0e:00.0", booted=ENTRIES)
    assert found == Passthrough(absent=ENTRIES)
    assert remarks.warnings == ["passthrough names 0000:0e:00.0, and no GPU is seen there: correct it, or look for the card."]
    assert remarks.reboots == []


def test_a_card_that_has_moved_is_found() -> None:
    _, remarks = planned([replace(DISK, address=CARD.address), TWIN], "0e:00.0", booted=ENTRIES)
    assert remarks.warnings == [
        "passthrough names 0000:0e:00.0, and no GPU is seen there (a card like the one that was there is at 0000:0f:00.0 now):"
        " correct it, or look for the card."
    ]


def test_a_function_that_is_no_gpu_names_no_card() -> None:
    found, remarks = planned([CARD, SOUND], "0e:00.1")
    assert found.functions == ()
    assert len(remarks.warnings) == 1


def test_what_is_given_back_computes_in_the_same_plan() -> None:
    """Or the plan would change with the reboot, in the middle of a run."""
    there = gpu_worker(PASCAL, driver_of_gpus="vfio-pci", drivers=replace(loaded("580.95.05"), passthrough=()))
    there = replace(there, drivers=replace(there.drivers, passthrough=("0000:01:00.0/10de:1b06",)))
    before = plan_of([there, head()])
    after = plan_of([replace(there, drivers=loaded("580.95.05"), gpus=gpus(PASCAL, driver="nvidia"), devices=()), head()])
    assert before.machines["w1"].must_reboot
    assert not after.machines["w1"].must_reboot
    assert before.hosts["w1"].release == after.hosts["w1"].release
    assert [gpu.address for gpu in before.machines["w1"].gpus] == ["0000:01:00.0"]


DEVICES = st.lists(
    st.builds(
        Device,
        st.sampled_from(["0000:0e:00.0", "0000:0e:00.1", "0000:0f:00.0", "0000:10:00.0"]),
        st.sampled_from(["0300", "0302", "0403", "0108", "0604", None]),
        vendor_id=st.sampled_from(["10de", "8086"]),
        device_id=st.sampled_from(["1b06", "10ef"]),
        driver=st.sampled_from([None, "vfio-pci", "nouveau"]),
        iommu_group=st.sampled_from([None, 1, 2]),
    ),
    unique_by=lambda device: device.address,
)
NAMED = st.lists(st.sampled_from(["0e:00.0", "0e:00.1", "0f:00.0", "10:00.0"]), unique=True)
BOOTED = st.lists(st.sampled_from([*ENTRIES, "0000:0f:00.0/8086:10ef", "0000:10:00.0/10de:1b06", "x"]), unique=True)


@given(DEVICES, NAMED, BOOTED)
def test_only_parts_of_named_cards_are_bound_and_what_is_owed_has_an_end(devices: Any, named: Any, booted: Any) -> None:
    found, remarks = planned(devices, *named, booted=booted)
    slots = {f"0000:{address[:-2]}" for address in named}
    assert {address[:-2] for address in addresses(found)} <= slots
    assert not set(addresses(found)) & set(found.returned)
    assert {address[:-2] for address in found.returned}.isdisjoint(slots)
    for sentence in (*remarks.refusals, *remarks.warnings):
        assert "None" not in sentence.replace("None:", "")
    if remarks.refusals:
        return
    # The reboot that the plan asks for, and nothing is owed any more.
    taken = {function.address for function in found.functions}
    booted_next = [*(function.entry for function in found.functions), *found.absent]
    after = [
        replace(
            device,
            driver="vfio-pci" if device.address in taken else None if device.address in found.returned else device.driver,
            iommu_group=3 if device.iommu_group is None else device.iommu_group,
        )
        for device in devices
    ]
    again, said = planned(after, *named, booted=booted_next)
    assert said.refusals or (said.steps, said.reboots) == ([], []) or set(addresses(again)) != taken
