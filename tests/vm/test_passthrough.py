"""A hypervisor that boots through GRUB: one of two equal cards is passed through and given back, with real reboots by our code.

The runs before the first reboot are killed: the next one goes on from what the host shows.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT, Ended, pyinfra, pyinfra_command
from tests.vm.conftest import Vm

PASSED, SOUND, OTHER, SHARING, SHARED = "0000:01:00.0", "0000:01:00.1", "0000:02:00.0", "0000:04:01.0", "0000:04:02.0"
DEVICES = (
    "pcie-root-port,id=one,addr=4,chassis=4",
    "secondary-vga,bus=one,addr=0.0,multifunction=on,romfile=",
    "intel-hda,bus=one,addr=0.1",
    "pcie-root-port,id=two,addr=5,chassis=5",
    "secondary-vga,bus=two,romfile=",
    "pcie-root-port,id=three,addr=6,chassis=6",
    "pcie-pci-bridge,id=bridge,bus=three",
    "secondary-vga,bus=bridge,addr=1,romfile=",
    "e1000,bus=bridge,addr=2,romfile=",
)
ARGUMENT = f"gpuquilt.passthrough={PASSED}/1234:1111,{SOUND}/8086:2668"
OURS = "/etc/initramfs-tools /etc/default/grub.d /etc/kernel /boot/grub/grub.cfg"
SECONDS = 900
"""How long one run may take on a busy computer."""


@pytest.fixture(scope="module")
def vm(image: Path, boot_disk: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vm]:
    with Vm(image, tmp_path_factory.mktemp("vm"), DEVICES, boot_disk=boot_disk) as vm:
        yield vm


def inventory(vm: Vm, passthrough: list[str]) -> str:
    """An inventory with this hypervisor, and a guest of it that is off and of which nothing else is known yet."""
    reach: dict[str, Any] = {
        "commit": "0" * 40,
        "network": "10.0.2.0/24",
        "ssh_hostname": "127.0.0.1",
        "ssh_port": vm.port,
        "ssh_user": "root",
        "ssh_key": vm.key,
        "ssh_known_hosts_file": str(vm.known_hosts),
        "ssh_strict_host_key_checking": "yes",
    }
    guest = ("guest", {"ssh_hostname": "127.0.0.1", "ssh_port": 9, "runs_on": "virt"})
    path = vm.console.with_name("inventory.py")
    path.write_text(f"hypervisors = {[('virt', reach | {'passthrough': passthrough})]!r}\nworkers = {[guest]!r}\n")
    return str(path)


def run(vm: Vm, passthrough: list[str], reboot: str = "when-owed") -> Ended:
    """What a user types on day one."""
    words = ("-y", inventory(vm, passthrough), "deploys/hypervisors.py", "--data", f"reboot={reboot}")
    return pyinfra(*words, timeout=SECONDS)


def run_until_killed(vm: Vm, passthrough: list[str], condition: str, unit: str) -> None:
    """Kill a run, and what it has started on the host, as soon as a condition holds there."""
    words = ("-y", inventory(vm, passthrough), "deploys/hypervisors.py", "--data", "reboot=never")
    said = vm.console.with_name("said")
    with said.open("w") as log:
        process = subprocess.Popen(pyinfra_command(*words), cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        end = time.monotonic() + SECONDS
        # The machine itself looks: each connection costs it a second.
        tries = f"for try in $(seq 50); do {condition} && exit; sleep 0.2; done; exit 1"
        while vm.ssh(tries, timeout=SECONDS).status != 0:
            assert process.poll() is None, f"it has ended: {said.read_text()}"
            assert time.monotonic() < end, f"never: {condition}"
    finally:
        process.kill()
        process.wait()
    vm.ssh(f"systemctl kill --signal=KILL {unit}.service")


def drivers(vm: Vm) -> dict[str, str]:
    """Address → the driver that holds a function."""
    addresses = (PASSED, SOUND, OTHER, SHARING, SHARED)
    links = " ".join(f"/sys/bus/pci/devices/{address}/driver" for address in addresses)
    lines = vm.out(f"for link in {links}; do readlink -f $link || echo; done").splitlines()
    return {address: Path(line).name for address, line in zip(addresses, lines, strict=True)}


def boot_id(vm: Vm) -> str:
    return vm.out("cat /proc/sys/kernel/random/boot_id")


def state(vm: Vm) -> str:
    """All that a run could change, with the times at which it was changed."""
    return vm.out(f"find {OURS} /boot/initrd.img-* -type f -exec stat -c '%n %Y %i' {{}} + | sort; cat /proc/cmdline") + boot_id(
        vm
    )


def test_a_card_is_passed_through_and_given_back(vm: Vm) -> None:
    before = drivers(vm)
    assert before[PASSED] == before[OTHER] == before[SHARING] == "bochs-drm"
    first_boot, first_initrd = boot_id(vm), vm.out("stat -c %Y /boot/initrd.img-*-amd64")

    run_until_killed(vm, [PASSED], "ls -d /var/tmp/mkinitramfs_*/conf", "gpuquilt-initramfs")
    assert vm.out("stat -c %Y /boot/initrd.img-*-amd64") == first_initrd
    assert "gpuquilt" not in vm.out("cat /boot/grub/grub.cfg"), "the argument comes after what acts on it"

    run_until_killed(vm, [PASSED], f"grep -q {ARGUMENT} /boot/grub/grub.cfg", "gpuquilt-boot-loader")
    assert vm.out("stat -c %Y /boot/initrd.img-*-amd64") != first_initrd
    assert drivers(vm) == before
    assert boot_id(vm) == first_boot

    ended = run(vm, [PASSED])
    assert ended.status == 0, ended.text
    assert boot_id(vm) != first_boot
    assert "the IOMMU is off" in ended.text, "what it was rebooted for"
    assert drivers(vm) == before | {PASSED: "vfio-pci", SOUND: "vfio-pci"}
    assert PASSED not in vm.out("journalctl -b -k | grep -i bochs"), "another driver had it first"
    assert ARGUMENT in vm.out("cat /proc/cmdline")
    assert f"{PASSED} is kept for guest: vfio-pci, IOMMU group" in ended.text
    for function in (0, 1):
        assert f"<address domain='0x0000' bus='0x01' slot='0x00' function='0x{function}'/>" in ended.text
    assert "hostpci0: 0000:01:00,pcie=1" in ended.text

    settled = state(vm)
    ended = run(vm, [PASSED])
    assert ended.status == 0, ended.text
    assert state(vm) == settled, "a second run changes nothing"

    ended = run(vm, [PASSED, SHARING])
    assert ended.status == 1, ended.text
    assert f"{SHARING} shares IOMMU group" in ended.text
    assert f"with {SHARED} (network 8086:100e" in ended.text
    assert state(vm) == settled, "a refusal changes nothing"

    ended = run(vm, [])
    assert ended.status == 0, ended.text
    assert drivers(vm) == before
    assert "gpuquilt" not in vm.out("cat /proc/cmdline /boot/grub/grub.cfg")
    assert vm.out("find / -xdev -name '*gpuquilt*passthrough*'") == ""
