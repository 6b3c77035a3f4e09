"""How a host boots: the real command on made-up hosts, its parser, and what is refused."""

from __future__ import annotations

import os
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roles.cluster.passthrough import Function
from roles.cluster.provision import MachinePlan
from roles.passthrough.boot import LOADER_INFO, Boot, bound_by_others, look, parse, problems, says
from roles.passthrough.texts import DROP_IN, HOOK, KERNEL_COMMAND_LINE, SCRIPT, words
from tests.unit.gpus.host import Host

ENTRY = "/boot/vmlinuz-6.1.0-9-amd64 root=/dev/sda1 ro quiet"
MENU = f"""### BEGIN /etc/grub.d/10_linux ###
menuentry 'Debian GNU/Linux' {{
	linux	{ENTRY}
	initrd	/boot/initrd.img-6.1.0-9-amd64
}}
submenu 'Advanced' {{
		linux	{ENTRY}
		linux	{ENTRY} single
}}
### END /etc/grub.d/10_linux ###
### BEGIN /etc/grub.d/30_os-prober ###
	linux /boot/vmlinuz-other root=/dev/sdb1
### END /etc/grub.d/30_os-prober ###
"""
BOUND = MachinePlan(passthrough=(Function("0000:0e:00.0", "10de", "1b06", 14, "vfio-pci"),))
HELD = MachinePlan(passthrough=(Function("0000:0e:00.0", "10de", "1b06", 14, "nouveau"),))
GOOD = Boot(initramfs_tools=True, initrds={"6.1.0-9-amd64": False}, loader="grub", entries=(ENTRY,), running=ENTRY)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """A Debian with GRUB, and nothing of ours on it."""
    host = Host(tmp_path)
    host.file("usr/share/initramfs-tools/hook-functions", "x")
    for name in ("update-initramfs", "update-grub", "kernel-install"):
        host.program(name, "true")
    for version in ("6.1.0-9-amd64", "6.1.0-8-amd64"):
        host.file(f"boot/vmlinuz-{version}", "x")
        host.file(f"boot/initrd.img-{version}", "x")
    host.file("boot/vmlinuz-5.0.0-self-made", "x")
    host.file("boot/grub/grub.cfg", MENU)
    host.file("proc/cmdline", ENTRY)
    return host


def seen(host: Host) -> Boot:
    ended = host.run(look(str(host.root)))
    assert (ended.status, ended.errors) == (0, "")
    return parse(ended.output.splitlines())


def aged(host: Host, name: str, seconds: int) -> None:
    path = host.root / name
    os.utime(path, (seconds, seconds))


def test_a_host_with_grub_and_nothing_of_ours(host: Host) -> None:
    assert seen(host) == Boot(
        initramfs_tools=True,
        initrds={"6.1.0-8-amd64": False, "6.1.0-9-amd64": False},
        loader="grub",
        entries=(ENTRY, f"{ENTRY} single"),
        running=ENTRY,
    )


def test_an_initramfs_that_was_made_after_our_scripts_has_them(host: Host) -> None:
    for path in (SCRIPT, HOOK):
        host.file(path[1:], "x")
        (host.root / path[1:]).chmod(0o755)
        aged(host, path[1:], 100)
    aged(host, "boot/initrd.img-6.1.0-9-amd64", 101)
    aged(host, "boot/initrd.img-6.1.0-8-amd64", 100)
    found = seen(host)
    assert found.initrds == {"6.1.0-8-amd64": False, "6.1.0-9-amd64": True}
    assert found.files == {path: sha256(b"x\n").hexdigest() for path in (SCRIPT, HOOK)}
    aged(host, HOOK[1:], 200)
    assert not any(seen(host).initrds.values())


def test_a_script_that_cannot_be_run_is_damaged(host: Host) -> None:
    host.file(SCRIPT[1:], "x")
    host.file(DROP_IN[1:], "x")
    assert seen(host).files == {SCRIPT: "damaged", DROP_IN: sha256(b"x\n").hexdigest()}


def test_systemd_boot_is_known_by_the_name_that_it_gives_itself(host: Host) -> None:
    host.file(f"sys/firmware/efi/efivars/{LOADER_INFO}")
    (host.root / f"sys/firmware/efi/efivars/{LOADER_INFO}").write_bytes(b"\6\0\0\0" + "systemd-boot 252.39".encode("utf-16-le"))
    host.file(KERNEL_COMMAND_LINE[1:], "root=ZFS=rpool/ROOT/pve-1\nboot=zfs")
    host.file("etc/kernel/proxmox-boot-uuids", "AB12-CD34")
    host.file("var/lib/gpuquilt/passthrough")
    host.program("proxmox-boot-tool", "true")
    found = seen(host)
    assert (found.loader, found.proxmox) == ("systemd-boot", True)
    assert found.command_line == "root=ZFS=rpool/ROOT/pve-1 boot=zfs"
    assert found.refreshed == ""


def test_grub_may_name_itself_too(host: Host) -> None:
    host.file(f"sys/firmware/efi/efivars/{LOADER_INFO}")
    (host.root / f"sys/firmware/efi/efivars/{LOADER_INFO}").write_bytes(b"\6\0\0\0" + "GRUB 2.12".encode("utf-16-le"))
    assert seen(host).loader == "grub"


def test_proxmox_may_keep_the_configuration_of_grub_elsewhere(host: Host) -> None:
    (host.root / "boot/grub/grub.cfg").unlink()
    host.file("etc/kernel/proxmox-boot-uuids", "AB12-CD34")
    host.program("proxmox-boot-tool", "true")
    assert (seen(host).loader, seen(host).proxmox) == ("grub", True)


@pytest.mark.parametrize("missing", ["boot/grub/grub.cfg", "programs/update-grub"])
def test_another_boot_loader_is_none_that_we_know(host: Host, missing: str) -> None:
    (host.root / missing).unlink()
    ended = host.run(look(str(host.root)).replace("PATH=$PATH:/usr/sbin:/sbin", f"PATH={host.programs}:/usr/bin:/bin"))
    assert parse(ended.output.splitlines()).loader == ""


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("etc/modprobe.d/vfio.conf", "options vfio-pci ids=10de:1b06,10de:10ef disable_vga=1"),
        ("proc/cmdline", f"{ENTRY} vfio-pci.ids=10de:1b06"),
        ("etc/driverctl.d/pci:0000:0e:00.0", "vfio-pci"),
    ],
)
def test_other_means_of_binding_are_seen(host: Host, name: str, text: str) -> None:
    assert not seen(host).foreign
    host.file(name, text)
    assert seen(host).foreign


def test_a_host_without_anything(tmp_path: Path) -> None:
    assert seen(Host(tmp_path)) == Boot()
    assert parse([]) == Boot()


@given(st.lists(st.text(max_size=40) | st.sampled_from(["entry", "initrd x", "file", "loader", "command-line", "refreshed"])))
def test_whatever_a_host_says_is_read(lines: list[str]) -> None:
    parse(lines)


WANTED = words(HELD)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{ENTRY} {' '.join(WANTED)}", True),
        (ENTRY, False),
        (f"{ENTRY} {WANTED[0]}", False),
        (f"{ENTRY} {' '.join(WANTED)} gpuquilt.passthrough=0000:01:00.0/10de:1b06", False),
        (f"{ENTRY} {' '.join(WANTED).replace('0e', '0f')}", False),
    ],
)
def test_an_entry_has_ours_or_another(text: str, expected: bool) -> None:
    assert says(text, WANTED) == expected
    assert not says(f"{ENTRY} {WANTED[0]}", ())
    assert says(ENTRY, ())


def test_nothing_speaks_against_a_host_with_grub() -> None:
    assert problems(GOOD, HELD) == []
    assert problems(Boot(), MachinePlan()) == []


@pytest.mark.parametrize("change", [{"initramfs_tools": False}, {"initrds": {}}])
def test_an_initramfs_of_dracut_is_refused(change: dict[str, object]) -> None:
    assert problems(replace(GOOD, **change), HELD) == [  # type: ignore[arg-type]
        "its initramfs is not made by initramfs-tools, which we bind cards with: install that in place of dracut, or bind the"
        " card by other means first, e.g. with `driverctl set-override`."
    ]


def test_a_boot_loader_that_we_do_not_know_is_a_matter_of_hands() -> None:
    unknown = replace(GOOD, loader="")
    assert problems(unknown, HELD) == [
        "its boot loader is neither GRUB nor systemd-boot: give the kernel the arguments"
        " gpuquilt.passthrough=0000:0e:00.0/10de:1b06 intel_iommu=on iommu=pt by hand, reboot, and run again."
    ]
    done = replace(unknown, running=f"root=/dev/sda1 {' '.join(WANTED)}")
    assert problems(done, HELD) == []
    assert problems(done, MachinePlan()) == [
        "its boot loader is neither GRUB nor systemd-boot: take gpuquilt.passthrough from the kernel's arguments by hand, reboot,"
        " and run again."
    ]


def test_what_is_bound_by_other_means_is_left_alone() -> None:
    theirs = replace(GOOD, foreign=True, initramfs_tools=False, loader="")
    assert bound_by_others(theirs, BOUND)
    assert problems(theirs, BOUND) == []
    assert not bound_by_others(theirs, HELD)
    assert not bound_by_others(replace(theirs, foreign=False), BOUND)
    assert not bound_by_others(replace(theirs, files={SCRIPT: "x"}), BOUND)
    assert not bound_by_others(theirs, MachinePlan())
