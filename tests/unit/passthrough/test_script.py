"""The script that binds cards in the initramfs, run by the shell on a made-up machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from roles.passthrough.texts import HOOK, SCRIPT, scripts
from tests.conftest import Ended, run

CARD, SOUND, DISK = "0000:0e:00.0", "0000:0e:00.1", "0000:0f:00.0"
SHELLS = (("dash",), ("bash", "--posix"))


class Machine:
    """Its sysfs is a folder: a file takes note of what was written to it, and drivers come only by themselves."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.bus = root / "sys/bus/pci"
        (root / "proc").mkdir(parents=True)
        self.bus.mkdir(parents=True)
        (root / "programs").mkdir()
        modprobe = root / "programs/modprobe"
        modprobe.write_text(f'#!/bin/sh\necho "$@" >>{root}/loaded\n')
        modprobe.chmod(0o755)
        self.boot("")

    def boot(self, *arguments: str) -> None:
        (self.root / "proc/cmdline").write_text(" ".join(["BOOT_IMAGE=/vmlinuz", *arguments, "quiet"]) + "\n")

    def device(self, address: str, ids: str, driver: str = "") -> Path:
        folder = self.bus / "devices" / address
        folder.mkdir(parents=True)
        vendor, device = ids.split(":")
        (folder / "vendor").write_text(f"0x{vendor}\n")
        (folder / "device").write_text(f"0x{device}\n")
        (folder / "driver_override").write_text("(null)\n")
        if driver:
            (self.bus / "drivers" / driver).mkdir(parents=True)
            (folder / "driver").symlink_to(self.bus / "drivers" / driver)
        return folder

    def override(self, address: str) -> str:
        return (self.bus / "devices" / address / "driver_override").read_text().strip()

    def read(self, name: str) -> str:
        path = self.root / name
        return path.read_text() if path.exists() else ""

    def run(self, shell: tuple[str, ...], *words: str) -> Ended:
        # No other program is within reach, as in an initramfs.
        path = self.root / "script"
        path.write_text(scripts(str(self.root))[SCRIPT])
        return run(f"/bin/{shell[0]}", *shell[1:], str(path), *words, PATH=str(self.root / "programs"))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    found = Machine(tmp_path)
    found.device(CARD, "10de:1b06")
    found.device(SOUND, "10de:10ef", "snd_hda_intel")
    found.device(DISK, "144d:a808", "nvme")
    return found


@pytest.mark.parametrize("shell", SHELLS)
def test_what_the_argument_names_is_bound(machine: Machine, shell: tuple[str, ...]) -> None:
    machine.boot(f"gpuquilt.passthrough={CARD}/10de:1b06,{SOUND}/10de:10ef", "iommu=pt")
    ended = machine.run(shell)
    assert (ended.status, ended.text) == (0, "")
    assert [machine.override(address) for address in (CARD, SOUND, DISK)] == ["vfio-pci", "vfio-pci", "(null)"]
    assert machine.read("loaded") == "vfio-pci\n"
    assert machine.read("sys/bus/pci/drivers/snd_hda_intel/unbind") == f"{SOUND}\n"
    assert machine.read("sys/bus/pci/drivers_probe") == f"{CARD}\n"
    assert machine.read("sys/bus/pci/drivers/nvme/unbind") == ""


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    "argument",
    [
        "",
        "gpuquilt.passthrough=",
        f"gpuquilt.passthrough={DISK}/10de:1b06",
        f"gpuquilt.passthrough={DISK}",
        f"gpuquilt.passthrough={DISK}/",
        "gpuquilt.passthrough=0000:99:00.0/10de:1b06",
        f"gpuquilt.passthrough=*/144d:a808,{DISK}/144d:*",
        f"other.gpuquilt.passthrough={DISK}/144d:a808",
    ],
)
def test_no_other_device_is_taken(machine: Machine, shell: tuple[str, ...], argument: str) -> None:
    machine.boot(argument)
    ended = machine.run(shell)
    assert (ended.status, ended.text) == (0, "")
    assert [machine.override(address) for address in (CARD, SOUND, DISK)] == ["(null)"] * 3
    assert machine.read("sys/bus/pci/drivers/nvme/unbind") == ""
    assert machine.read("sys/bus/pci/drivers_probe") == ""


def test_without_the_argument_not_even_the_module_is_loaded(machine: Machine) -> None:
    machine.run(SHELLS[0])
    assert machine.read("loaded") == ""


def test_a_card_that_was_pulled_does_not_keep_the_other_from_being_bound(machine: Machine) -> None:
    machine.boot(f"gpuquilt.passthrough=0000:01:00.0/10de:1b06,{CARD}/10de:1b06")
    machine.run(SHELLS[0])
    assert machine.override(CARD) == "vfio-pci"


@pytest.mark.parametrize("path", [SCRIPT, HOOK])
def test_the_scripts_name_no_prerequisites(path: str) -> None:
    ended = run("dash", "-c", scripts()[path], "script", "prereqs")
    assert (ended.status, ended.text) == (0, "")
