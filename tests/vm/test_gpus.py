"""What the facts say of a real kernel is what QEMU's command line put there.

QEMU's own cards have one lane, or no link at all, and their ports do what the card can: `narrow`, `idle`
and `slow` cannot be had.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT, pyinfra
from tests.vm.conftest import Vm

USERS = ("root", "person")


def port(name: str, slot: str, speed: str = "8", width: int = 16) -> str:
    """A root port: GT/s, and lanes."""
    return f"pcie-root-port,id={name},addr={slot},chassis={int(slot, 16)},x-speed={speed},x-width={width}"


DEVICES = (
    "VGA,addr=10,romfile=",
    port("wide", "4"),
    "bochs-display,bus=wide,romfile=",
    port("narrow", "5", width=4),
    "secondary-vga,bus=narrow,romfile=",
    port("sleeping", "6", speed="16", width=8) + ",hotplug=off",
    "virtio-gpu-pci,bus=sleeping,romfile=",
    port("old", "7", speed="2_5", width=1),
    "ati-vga,bus=old,romfile=",
    port("shared", "8"),
    "pcie-pci-bridge,id=bridge,bus=shared",
    "secondary-vga,bus=bridge,addr=1,romfile=",
    "e1000,bus=bridge,addr=2,romfile=",
    port("switched", "9", speed="16"),
    "x3130-upstream,id=upstream,bus=switched",
    "xio3130-downstream,id=downstream,bus=upstream,chassis=20",
    "bochs-display,bus=downstream,romfile=",
    port("dead", "a"),
    "bochs-display,bus=dead,romfile=",
)

KERNEL = "intel_iommu=on iommu=pt pcie_port_pm=force"
"""Ports sleep when all that is below them does, as those of laptops do; of QEMU's only those that cannot be plugged."""

# vfio-pci lets what no VM uses sleep. A port that hands its bus over to nobody makes the card behind it read all ones.
PREPARE = """
set -e
modprobe vfio-pci
cd /sys/bus/pci/devices/0000:03:00.0
echo vfio-pci >driver_override
echo 0000:03:00.0 >driver/unbind
echo 0000:03:00.0 >/sys/bus/pci/drivers_probe
setpci -s 00:0a.0 SUBORDINATE_BUS=fe SECONDARY_BUS=fe
until grep -q suspended /sys/bus/pci/devices/0000:00:06.0/power/runtime_status; do sleep 0.1; done
"""


@dataclass(frozen=True)
class Card:
    """What must be said of a card.

    :param width, max_width: of the link that counts
    :param measured_at: whose link that is
    """

    verdict: str
    driver: str | None
    width: int | None = None
    max_width: int | None = None
    measured_at: str | None = None
    neighbours: tuple[str, ...] = ()


CARDS = {
    "0000:00:10.0": Card("unknown", "bochs-drm"),
    "0000:01:00.0": Card("full", "bochs-drm", 1, 1, "0000:01:00.0"),
    "0000:02:00.0": Card("slot", "bochs-drm", 4, 4, "0000:00:05.0"),
    "0000:03:00.0": Card("unknown", "vfio-pci"),
    "0000:04:00.0": Card("slot", None, 1, 1, "0000:00:07.0"),
    "0000:06:01.0": Card("unknown", "bochs-drm", neighbours=("0000:06:02.0",)),
    "0000:09:00.0": Card("full", "bochs-drm", 1, 1, "0000:09:00.0"),
    "0000:0a:00.0": Card("unreachable", "bochs-drm", measured_at="0000:0a:00.0"),
}


@dataclass(frozen=True)
class Seen:
    """The machine, and what the facts said of it to each user."""

    vm: Vm
    reports: dict[str, Any]
    rested: tuple[str, str]
    """How long the port above the sleeping card had been awake, before and after, ms."""


@pytest.fixture(scope="module")
def seen(image: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    folder = tmp_path_factory.mktemp("vm")
    with Vm(image, folder, DEVICES, KERNEL) as vm:
        vm.out(PREPARE)
        # Reading a card that sleeps wakes the port first, and with this kernel often nothing else.
        awake = "cat /sys/bus/pci/devices/0000:00:06.0/power/runtime_active_time"
        before = vm.out(awake)
        reach = {
            "ssh_hostname": "127.0.0.1",
            "ssh_port": vm.port,
            "ssh_key": vm.key,
            "ssh_known_hosts_file": str(vm.known_hosts),
            "ssh_strict_host_key_checking": "yes",
        }
        inventory = folder / "inventory.py"
        inventory.write_text(f"hosts = {[(user, reach | {'ssh_user': user}) for user in USERS]}\n")
        ended = pyinfra("-y", str(inventory), "tests/vm/deploys/gpus.py", "--data", f"report={folder}")
        assert ended.status == 0, ended.text
        reports = {user: json.loads((folder / f"{user}.json").read_text()) for user in USERS}
        yield Seen(vm, reports, (before, vm.out(awake)))


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("address", CARDS)
def test_a_card_is_judged_by_what_the_command_line_gave_it(seen: Seen, address: str, user: str) -> None:
    found = {gpu["address"]: gpu for gpu in seen.reports[user]["gpus"]}
    assert set(found) == set(CARDS)
    gpu, link = found[address], found[address]["link"]
    card = Card(
        link["verdict"],
        gpu["driver"],
        link["width"],
        link["max_width"],
        link["measured_at"],
        tuple(gpu["iommu_neighbours"]),
    )
    assert card == CARDS[address], link["reason"]


def test_a_group_is_of_one_card_unless_a_bridge_joins_what_is_behind_it(seen: Seen) -> None:
    groups = {gpu["address"]: gpu["iommu_group"] for gpu in seen.reports["person"]["gpus"]}
    assert None not in groups.values()
    assert len(set(groups.values())) == len(CARDS)


def test_lspci_and_sysfs_say_the_same(seen: Seen) -> None:
    sysfs = {device["address"]: device for device in seen.reports["root"]["pci"]}
    lspci = {device["address"]: device for device in seen.reports["root"]["lspci"]}
    # QEMU's switch claims to have no lanes, which lspci prints.
    lspci["0000:08:00.0"]["link"]["max_width"] = None
    asleep = {"0000:00:06.0", "0000:03:00.0"}
    assert {address for address, device in sysfs.items() if device["asleep"]} == asleep
    assert set(sysfs) - set(lspci) == asleep | {"0000:06:02.0"}, "those that sleep, and the one that is no GPU"
    for address, device in lspci.items():
        same = ("class_id", "vendor_id", "device_id", "driver", "iommu_group", "dead", "link", "windows")
        assert {key: device[key] for key in same} == {key: sysfs[address][key] for key in same}, address


def test_who_is_not_root_sees_as_much_in_sysfs(seen: Seen) -> None:
    assert seen.reports["person"]["pci"] == seen.reports["root"]["pci"]
    assert any(device["denied"] for device in seen.reports["person"]["lspci"])


def test_a_card_that_sleeps_was_not_woken_nor_the_port_above_it(seen: Seen) -> None:
    before, after = seen.rested
    assert before == after


def test_the_kernel_is_named_and_no_driver_of_nvidia_is_there(seen: Seen) -> None:
    drivers = seen.reports["person"]["drivers"]
    assert drivers["kernel"] == seen.vm.out("uname -r").strip()
    assert drivers["secure_boot"] is None
    assert drivers["nvidia"]["loaded"] == drivers["nvidia"]["on_disk"] == ""


def test_the_pasted_text_of_lspci_leads_to_the_same(seen: Seen) -> None:
    text = seen.vm.out("lspci -D -nn -vvk")
    command = [sys.executable, "-m", "roles.gpus", "-"]
    ended = subprocess.run(command, input=text, capture_output=True, text=True, cwd=ROOT, check=False, timeout=60)
    assert ended.returncode == 0, ended.stderr
    said = {gpu["address"]: gpu["link"]["verdict"] for gpu in json.loads(ended.stdout)}
    # lspci does not say that a card sleeps.
    awake = {address: card.verdict for address, card in CARDS.items()} | {"0000:03:00.0": "full"}
    assert said == awake
