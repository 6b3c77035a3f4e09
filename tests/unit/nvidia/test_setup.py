"""What is read of a host, and what is done there: only where something differs."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from pyinfra.api import FunctionCommand
from pyinfra.context import ctx_host, ctx_state
from pyinfra_testing.util import FakeState, create_host  # type: ignore[import-untyped]

from roles.base.apt import COMPONENTS, Apt, Record
from roles.cluster.driver import Driver
from roles.gpus.driver import Drivers, Nvidia
from roles.nvidia import operations
from roles.nvidia.setup import COMMAND, Setup, parse
from roles.nvidia.texts import FILES, FORGOTTEN, MODPROBE, PERSISTENCE, PINS, UNATTENDED, UNIT, UNIT_FILE, texts

DEBIAN_535 = Driver("535.261.03", 535, "proprietary", "distribution", ("nvidia-kernel-dkms", "libcuda1"))
NVIDIA_580 = Driver("580.178.04", 580, "proprietary", "nvidia", ("nvidia-driver-pinning-580", "nvidia-kernel-dkms"))

NOTHING = Record()

LINES = [
    f"file {PINS} {'1' * 64}",
    f"file {MODPROBE} {'2' * 64}",
    "package installed nvidia-kernel-dkms:amd64 535.309.01-0+deb12u1",
    "package half-configured libcuda1:amd64 535.309.01-0+deb12u1",
    "package installed libcuda1:i386 535.309.01-0+deb12u1",
    "package installed nvidia-support:all 20220217+3~deb12u1",
    "package config-files nvidia-smi:amd64 535.261.03-1",
    "package not-installed nvidia-driver: ",
    "initrd young 6.1.0-57-amd64",
    "initrd old 6.1.0-50-amd64",
    "loaded",
    f"unit {PERSISTENCE} ActiveState=active UnitFileState=enabled NeedDaemonReload=no ",
    f"unit {UNIT} ActiveState=inactive UnitFileState=disabled NeedDaemonReload=yes ",
]


def test_what_a_host_shows() -> None:
    assert parse(LINES) == Setup(
        files={PINS: "1" * 64, MODPROBE: "2" * 64},
        packages={
            "nvidia-kernel-dkms": "535.309.01-0+deb12u1",
            "libcuda1": "535.309.01-0+deb12u1",
            "libcuda1:i386": "535.309.01-0+deb12u1",
            "nvidia-support": "20220217+3~deb12u1",
        },
        initrds=("6.1.0-57-amd64", "6.1.0-50-amd64"),
        old_initrds=("6.1.0-50-amd64",),
        loaded=True,
        disabled=frozenset({UNIT}),
        enabled=frozenset({PERSISTENCE}),
        active=frozenset({PERSISTENCE}),
        reload_owed=True,
    )


def test_a_host_that_has_nothing() -> None:
    assert parse([]) == Setup()
    assert parse([f"unit {UNIT} ActiveState=inactive UnitFileState= NeedDaemonReload=no "]) == Setup()


def shown(folder: Path, *tools: str) -> Setup:
    """What the command shows of a host whose folders are below this one, with these tools on it."""
    command = COMMAND
    for path in (*FILES, FORGOTTEN, "/boot", "/lib/modules"):
        command = command.replace(path, f"{folder}{path}")
    for tool in tools:
        path = folder / "bin" / tool
        path.parent.mkdir(exist_ok=True)
        path.touch(mode=0o755)
    words = ("dpkg-query", "sha256sum", "cut", "systemctl", "tr")
    paths = f"{folder}/bin"
    for word in words:
        command = command.replace(f"{word} ", f"env PATH={shlex.quote(os.environ['PATH'])} {word} ")
    command = command.replace(":/usr/sbin:/sbin", "")
    ended = subprocess.run(
        ["/bin/sh", "-c", command], capture_output=True, text=True, check=True, env={"PATH": f"{paths}:/nowhere"}
    )
    return parse(ended.stdout.replace(str(folder), "").splitlines())


@pytest.fixture
def host_folder(tmp_path: Path) -> Path:
    """A host with two kernels, of which one has been removed, and a disk of each."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/env").symlink_to("/usr/bin/env")
    for kernel in ("6.1.0-57-amd64", "6.1.0-50-amd64"):
        (tmp_path / "boot").mkdir(exist_ok=True)
        (tmp_path / f"boot/initrd.img-{kernel}").touch()
    (tmp_path / "lib/modules/6.1.0-57-amd64").mkdir(parents=True)
    return tmp_path


@pytest.mark.parametrize("tool", ["update-initramfs", "dracut"])
def test_a_disk_that_is_older_than_our_file_is_found(host_folder: Path, tool: str) -> None:
    file = host_folder / MODPROBE[1:]
    file.parent.mkdir(parents=True)
    assert shown(host_folder, tool).initrds == ("6.1.0-57-amd64",)
    assert shown(host_folder, tool).old_initrds == ()
    file.write_text("x")
    os.utime(host_folder / "boot/initrd.img-6.1.0-57-amd64", (1, 1))
    assert shown(host_folder, tool).old_initrds == ("6.1.0-57-amd64",)
    assert shown(host_folder, tool).files == {MODPROBE: sha256(b"x").hexdigest()}


def test_where_nothing_makes_disks_none_is_owed(host_folder: Path) -> None:
    assert shown(host_folder).initrds == ()


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    path = tmp_path / UNIT
    path.write_text(texts(DEBIAN_535)[UNIT_FILE])
    found = subprocess.run(["systemd-analyze", "verify", "--man=no", path], capture_output=True, text=True, check=False)
    # The programs come with the driver.
    assert not [line for line in found.stderr.splitlines() if UNIT in line and "is not executable" not in line]


def ready(driver: Driver, **changes: Any) -> Setup:
    """A host that this driver's files, disks and units are in order on."""
    files = {path: sha256(text.encode()).hexdigest() for path, text in texts(driver).items()}
    good = Setup(files=files, initrds=("6.1.0-57-amd64",), enabled=frozenset({PERSISTENCE, UNIT}))
    return replace(good, **changes)


def commands(
    operation: Any, seen: Setup, drivers: Drivers | None = None, graphics: Record = NOTHING, **arguments: Any
) -> list[str]:
    """What an operation yields on a host that shows this; of work the script."""
    state = FakeState()
    records = {"record=nvidia": Record(), "record=graphics": graphics}
    apt = Apt({COMPONENTS: "Types: deb\n"})
    facts = {"facts.SetupFact": seen, "facts.DriversFact": drivers, "facts.RecordFact": records, "facts.AptFact": apt}
    host = create_host(state, facts=facts)
    with ctx_state.use(state), ctx_host.use(host):
        found = list(operation._inner(**arguments))
    return [str(one.args[1]) if isinstance(one, FunctionCommand) else str(one) for one in found]


def paths_of(written: Sequence[str]) -> list[str]:
    return [command.split(">")[-1].partition(".new")[0] for command in written if command.startswith("mkdir -p")]


def test_pins_come_before_everything_else() -> None:
    told = commands(operations.keep_to, Setup(), driver=DEBIAN_535)
    assert paths_of(told) == [PINS, UNATTENDED, MODPROBE, UNIT_FILE]
    assert told[-1] == "systemctl daemon-reload"
    assert shlex.quote(texts(DEBIAN_535)[PINS]) in told[0]


def test_what_is_as_it_should_be_is_left_alone() -> None:
    seen = ready(DEBIAN_535, packages={"libcuda1": "535.309.01-1", "nvidia-modprobe": "535.309.01-1"}, loaded=True)
    seen = replace(seen, active=seen.enabled)
    assert commands(operations.keep_to, seen, driver=DEBIAN_535) == []
    assert commands(operations.nouveau_off, seen, driver=DEBIAN_535) == []
    assert commands(operations.devices, seen, driver=DEBIAN_535, reboots=False) == []
    assert commands(operations.no_other_driver, seen, driver=DEBIAN_535, gpus=()) == []


def test_a_reload_that_a_killed_run_owes_is_done() -> None:
    assert commands(operations.keep_to, ready(DEBIAN_535, reload_owed=True), driver=DEBIAN_535) == ["systemctl daemon-reload"]


def test_only_the_disks_that_do_not_know_are_made_anew() -> None:
    seen = ready(DEBIAN_535, initrds=("a", "b"), old_initrds=("b",))
    (script,) = commands(operations.nouveau_off, seen, driver=DEBIAN_535)
    assert script.count("for kernel in b; do") == 1
    (script,) = commands(operations.nouveau_off, replace(seen, files={}, old_initrds=()), driver=DEBIAN_535)
    assert "for kernel in a b; do" in script


def test_the_disk_is_made_once_though_the_clock_was_put_back(host_folder: Path) -> None:
    """By the script itself, with an update-initramfs that takes note of what it is told."""
    file, disk = host_folder / MODPROBE[1:], host_folder / "boot/initrd.img-6.1.0-57-amd64"
    file.parent.mkdir(parents=True)
    file.write_text("x")
    tool = host_folder / "bin/update-initramfs"
    tool.write_text(f'#!/bin/sh\necho "$@" >>{host_folder}/told\ntouch -d 2020-01-01 {disk}\n')
    tool.chmod(0o755)
    os.utime(disk, (1, 1))
    (script,) = commands(operations.nouveau_off, ready(DEBIAN_535, old_initrds=("6.1.0-57-amd64",)), driver=DEBIAN_535)
    script = script.replace(MODPROBE, str(file)).replace("/boot", f"{host_folder}/boot")
    for _ in range(2):
        subprocess.run(["sh", "-c", script], check=True, env={"PATH": f"{host_folder}/bin:{os.environ['PATH']}"})
    assert (host_folder / "told").read_text() == "-u -k 6.1.0-57-amd64\n"


def test_units_are_enabled_and_started_only_where_the_module_is_loaded() -> None:
    seen = ready(DEBIAN_535, enabled=frozenset(), disabled=frozenset({PERSISTENCE, UNIT}))
    enabling = [f"systemctl enable --quiet {UNIT}", f"systemctl enable --quiet {PERSISTENCE}"]
    why = "did not start: see `journalctl -u {0}` there for what failed, then run again.' >&2; exit 1; }}"
    starting = [(f"systemctl start {unit} || ", f": {unit} {why.format(unit)}") for unit in (PERSISTENCE, UNIT)]
    assert commands(operations.devices, seen, driver=DEBIAN_535, reboots=False) == enabling
    seen = replace(seen, loaded=True)
    told = commands(operations.devices, seen, driver=DEBIAN_535, reboots=False)
    assert told[:2] == enabling
    assert all(
        command.startswith(begin) and command.endswith(end) for command, (begin, end) in zip(told[2:], starting, strict=True)
    )
    # Field report B1: libraries that the loaded module does not know start nothing.
    assert commands(operations.devices, seen, driver=DEBIAN_535, reboots=True) == enabling


def test_an_old_driver_is_read_before_it_goes() -> None:
    seen = ready(NVIDIA_580, packages={"nvidia-kernel-dkms": "535.309.01-1", "libcuda1": "535.309.01-1"})
    refresh, _, purge = commands(operations.no_other_driver, seen, driver=NVIDIA_580, gpus=())
    assert refresh.endswith("refresh_lists\n")
    assert 'purge_packages nvidia-old "$(simulated purge libcuda1 nvidia-kernel-dkms)" libcuda1 nvidia-kernel-dkms\n' in purge
    # One that is there and good stays.
    there = replace(NVIDIA_580, source="loaded")
    assert commands(operations.no_other_driver, seen, driver=there, gpus=()) == []


def test_a_module_that_dkms_has_not_built_is_built_where_there_are_headers() -> None:
    """Field report B5."""
    seen = Drivers(kernel="6.1.0-50-amd64", next_kernel="6.1.0-57-amd64", headers=True, nvidia=Nvidia(dkms=False))
    (script,) = commands(operations.built, Setup(), seen)
    assert "dkms autoinstall -k 6.1.0-57-amd64 && exit 0" in script
    assert "s module for 6.1.0-57-amd64: see /var/lib/dkms/nvidia*/*/build/make.log there." in script
    assert commands(operations.built, Setup(), replace(seen, headers=False)) == []
    assert commands(operations.built, Setup(), replace(seen, nvidia=Nvidia(dkms=True))) == []
    assert commands(operations.built, Setup(), replace(seen, nvidia=Nvidia(dkms=None))) == []


def test_what_is_taken_back() -> None:
    seen = ready(DEBIAN_535)
    unit, files = commands(operations.keep_to_nothing, seen)
    assert unit == f"systemctl disable --quiet --now {UNIT}; rm -f {UNIT_FILE}; systemctl daemon-reload"
    assert files == f"rm -f {PINS} {UNATTENDED}"
    (script,) = commands(operations.nouveau_free, seen)
    assert script.endswith(f"rm {FORGOTTEN}\n")
    assert commands(operations.keep_to_nothing, Setup()) == commands(operations.nouveau_free, Setup()) == []
    # A run that was broken off while it was being taken back.
    assert len(commands(operations.nouveau_free, Setup(files={FORGOTTEN: "0" * 64}))) == 1


def test_components_stay_while_firmware_of_other_gpus_comes_from_them() -> None:
    assert commands(operations.no_sources, Setup()) == [f"rm {COMPONENTS}"]
    assert commands(operations.no_sources, Setup(), graphics=Record(True, {"firmware-amd-graphics": "installed"})) == []
    assert commands(operations.no_sources, Setup(packages={"nvidia-kernel-dkms": "550.163.01-2"})) == []
    assert commands(operations.no_sources, Setup(packages={"nvidia-container-toolkit": "1.19.0-1"})) == [f"rm {COMPONENTS}"]
