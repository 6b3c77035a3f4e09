"""deploys/hypervisors.py as a whole, on hosts that take note of each command and do nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from posixpath import dirname
from typing import Any

from roles.passthrough.texts import DROP_IN, SCRIPT
from tests.conftest import ROOT
from tests.unit.fakes import GOOD, Run, deploy, fake, inventory, is_look

HYPERVISORS = ROOT / "deploys" / "hypervisors.py"
SYSFS, DRIVERS, BOOT = "mem_info_vram_total", "nvidia-smi", "hook-functions"
"""Words of the commands that look at cards, at drivers, and at how the host boots."""


def function(path: str, class_id: str, ids: str, driver: str, group: int | None = 14) -> list[str]:
    vendor, device = ids.split(":")
    lines = [f"path /sys/devices/pci0000:00/{path}", f"class 0x{class_id}", f"vendor 0x{vendor}", f"device 0x{device}"]
    return [*lines, f"driver {driver}", *([] if group is None else [f"iommu_group {group}"])]


PORT = function("0000:00:03.1", "060400", "1022:1453", "pcieport")
CARD = function("0000:00:03.1/0000:0e:00.0", "030000", "10de:1b06", "nouveau")
BOUND = function("0000:00:03.1/0000:0e:00.0", "030000", "10de:1b06", "vfio-pci")
DISK = function("0000:00:03.1/0000:0f:00.0", "010802", "144d:a808", "nvme")


def run(folder: Path, sysfs: list[str], *options: str, answers: Mapping[str, Any] = {}, passthrough: str = "0e:00.0") -> Run:
    """:param answers: further answers of the hypervisor"""
    told = {SYSFS: sysfs, "systemctl is-active gpuquilt": ["0"], ">&2; exit 1": {"success": False}, **answers}
    virt = fake("virt", answers=told, **GOOD, passthrough=[passthrough] if passthrough else [])
    path = inventory(folder, hypervisors=[virt], workers=[fake("w1", runs_on="@fake/virt")])
    return deploy(path, *options, script=HYPERVISORS)


def changes(ended: Run) -> list[str]:
    """What is more than a look; the look for a reboot's end and the barriers of the run are none."""
    marks = ("update-initramfs -u", "update-grub", f"mkdir -p {dirname(SCRIPT)}", f"mv {DROP_IN}.new", "rm -f", "systemd-run")
    return [command for _, command in ended.commands if not is_look(command) and any(mark in command for mark in marks)]


def test_a_fresh_hypervisor_is_prepared_and_the_reboot_is_asked_for(tmp_path: Path) -> None:
    ended = run(tmp_path, [*PORT, *CARD])
    assert ended.ended.status == 1
    assert "nouveau holds 0000:0e:00.0, which is to be bound to vfio-pci" in ended.ended.text
    assert "Traceback" not in ended.ended.text
    found = changes(ended)
    assert any(command.startswith(f"mkdir -p {dirname(SCRIPT)}") for command in found)
    assert any(f"mv {DROP_IN}.new" in command for command in found)
    assert "kept for" not in ended.ended.text, "that is said once it is so"


def test_a_group_with_a_stranger_is_refused_before_any_change(tmp_path: Path) -> None:
    ended = run(tmp_path, [*PORT, *CARD, *DISK])
    assert ended.ended.status == 1
    assert "0000:0e:00.0 shares IOMMU group 14 with 0000:0f:00.0 (storage 144d:a808, driver nvme)" in " ".join(
        ended.ended.text.split()
    )
    assert changes(ended) == []


def test_a_host_of_dracut_is_refused_before_any_change(tmp_path: Path) -> None:
    answers = {BOOT: ["loader grub", "entry /vmlinuz root=/dev/sda1"]}
    ended = run(tmp_path, [*PORT, *CARD], answers=answers)
    assert ended.ended.status == 1
    assert "nothing was changed, because" in ended.ended.text
    assert "its initramfs is not made by initramfs-tools" in ended.ended.text
    assert changes(ended) == []


def test_a_card_that_others_have_bound_is_left_alone_and_offered(tmp_path: Path) -> None:
    answers = {BOOT: ["initramfs-tools", "initrd 1 old", "loader grub", "entry /vmlinuz root=/dev/sda1", "foreign"]}
    ended = run(tmp_path, [*PORT, *BOUND], answers=answers)
    assert ended.ended.status == 0, ended.ended.text
    assert changes(ended) == []
    assert "0000:0e:00.0 is kept for @fake/w1: vfio-pci, IOMMU group 14." in ended.ended.text
    assert "hostpci0: 0000:0e:00,pcie=1" in ended.ended.text


def test_a_hypervisor_without_passthrough_is_only_looked_at(tmp_path: Path) -> None:
    ended = run(tmp_path, [*PORT, *CARD], passthrough="")
    assert ended.ended.status == 0, ended.ended.text
    assert changes(ended) == []
