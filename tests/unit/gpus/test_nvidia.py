"""roles.gpus.nvidia: the real command on made-up hosts, and its parser on recorded texts."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roles.gpus import nvidia
from roles.gpus.catalog import load
from roles.gpus.driver import Drivers, Nvidia, NvidiaGpu
from tests.unit.gpus.host import Host

PROPRIETARY = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Tue Sep 23 10:11:16 UTC 2025"
OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  595.71.05  Release Build  (dvs-builder@U22-I3-AE18-23-3)"
MISMATCH = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 570.124"
ROW = "00000000:01:00.0, 12282, 1489, P8, 3, 1, 4, 8, 16, Enabled, 8.9"
SECURE_BOOT = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """A host with a GPU that NVIDIA's driver holds, and none of this computer's own programs that could answer for it."""
    host = Host(tmp_path)
    for name in ("mokutil", "modprobe", "modinfo", "dpkg-query", "dmesg"):
        host.program(name, "exit 1")
    host.device("0000:01:00.0", "030000 10de:27e0", "nvidia")
    host.file("proc/driver/nvidia/version", f"{PROPRIETARY}\nGCC version:  gcc version 12.2.0 (Debian 12.2.0-14)")
    host.file("sys/module/nvidia/version", "580.95.05")
    return host


def seen(host: Host) -> Drivers:
    ended = host.run(nvidia.look(str(host.root)))
    assert (ended.status, ended.errors) == (0, "")
    return nvidia.parse(ended.output.splitlines())


def test_a_host_without_the_driver_says_its_kernel_and_no_more(tmp_path: Path) -> None:
    host = Host(tmp_path)
    for name in ("modprobe", "modinfo", "dpkg-query", "dmesg"):
        host.program(name, "exit 1")
    host.program("uname", "echo 6.12.48+deb13-amd64")
    host.program("nvidia-smi", f"echo {ROW}")
    assert seen(host) == Drivers(kernel="6.12.48+deb13-amd64")


def test_a_gpu_is_asked_for_what_its_driver_knows(host: Host) -> None:
    host.program(
        "nvidia-smi", f'[ "$*" = "--query-gpu={",".join(nvidia.FIELDS)} --format=csv,noheader,nounits" ] && echo "{ROW}"'
    )
    found = seen(host).nvidia
    assert (found.loaded, found.loaded_flavour, found.problem) == ("580.95.05", "proprietary", "")
    assert found.gpus == {"0000:01:00.0": NvidiaGpu(12282, 1489, 8, 3, 8, 16, 1, 4, True, "8.9")}


@pytest.mark.parametrize("status", ["suspended", "suspending"])
def test_nvidia_smi_is_not_started_while_a_gpu_of_its_driver_sleeps(host: Host, status: str) -> None:
    host.device("0000:02:00.0", "030200 10de:2d04", "nvidia", status=status)
    host.program("nvidia-smi", f'touch {host.root}/woken; echo "{ROW}"')
    assert seen(host).nvidia.gpus == {}
    assert not (host.root / "woken").exists()


def test_a_gpu_that_sleeps_under_another_driver_is_no_business_of_nvidia_smi(host: Host) -> None:
    host.device("0000:02:00.0", "030000 10de:1b06", "vfio-pci", status="suspended")
    host.program("nvidia-smi", f'echo "{ROW}"')
    assert set(seen(host).nvidia.gpus) == {"0000:01:00.0"}


def test_a_complaint_is_kept_in_its_own_words(host: Host) -> None:
    host.program("nvidia-smi", f"printf '%s\\n' '{MISMATCH}'; exit 18")
    found = seen(host).nvidia
    assert found.problem == "Failed to initialize NVML: Driver/library version mismatch; NVML library version: 570.124"
    assert found.gpus == {}


def test_a_complaint_on_the_other_channel_is_kept_too(host: Host) -> None:
    host.program("nvidia-smi", "echo 'Unable to determine the device handle for GPU 0000:0B:00.0: Unknown Error' >&2; exit 255")
    assert seen(host).nvidia.problem == "Unable to determine the device handle for GPU 0000:0B:00.0: Unknown Error"


def test_an_nvidia_smi_that_hangs_is_given_up(host: Host) -> None:
    host.program("nvidia-smi", "sleep 60")
    host.program("timeout", 'shift 2; exec /usr/bin/timeout 0.2 "$@"')
    assert seen(host).nvidia.problem == "nvidia-smi did not answer within 20 s"


def test_an_older_driver_is_asked_for_less(host: Host) -> None:
    row = ROW.rpartition(",")[0]
    complaint = 'Field "compute_cap" is not a valid field to query.'
    host.program("nvidia-smi", f"case $1 in *compute_cap) echo '{complaint}'; exit 2 ;; *) echo '{row}' ;; esac")
    found = seen(host).nvidia
    assert found.problem == ""
    assert found.gpus["0000:01:00.0"] == NvidiaGpu(12282, 1489, 8, 3, 8, 16, 1, 4, True, None)


@pytest.mark.parametrize(
    ("license_", "flavour"), [("Dual MIT/GPL", "open"), ("NVIDIA", "proprietary"), ("GPL v2", None)], ids=["open", "own", "other"]
)
def test_the_module_on_disk_is_the_one_that_modprobe_would_load(host: Host, license_: str, flavour: str | None) -> None:
    host.file("boot/vmlinuz-6.12.57+deb13-amd64")
    asked = "--set-version=6.12.57+deb13-amd64 --show-depends nvidia"
    host.program("modprobe", f'[ "$*" = "{asked}" ] && echo "install modprobe -i nvidia-current \\$CMDLINE_OPTS"')
    lines = ["filename:       /x.ko", "version:        550.163.01", f"license:        {license_}"]
    host.program(
        "modinfo",
        f"[ \"$*\" = '-k 6.12.57+deb13-amd64 nvidia-current' ] && printf '%s\\n' {' '.join(repr(line) for line in lines)}",
    )
    found = seen(host).nvidia
    assert (found.on_disk, found.on_disk_flavour) == ("550.163.01", flavour)
    assert found.loaded == "580.95.05"


def test_without_such_a_rule_it_is_the_one_of_that_name(host: Host) -> None:
    host.program("modprobe", "echo insmod /lib/modules/6.12/updates/dkms/nvidia.ko")
    host.program("uname", "echo 6.12")
    host.program("modinfo", '[ "$*" = "-k 6.12 nvidia" ] && echo "version:        595.71.05"')
    assert seen(host).nvidia.on_disk == "595.71.05"


def test_packages_that_are_installed_count_and_no_others(host: Host) -> None:
    host.program(
        "dpkg-query",
        'printf "%s\\n" "package installed nvidia-kernel-dkms 550.163.01-2" "package config-files nvidia-smi 535.261.03-1"'
        ' "package not-installed libcuda1 "; exit 1',
    )
    assert seen(host).nvidia.packages == {"nvidia-kernel-dkms": "550.163.01-2"}


def test_packages_that_a_broken_run_has_left_count_too(host: Host) -> None:
    statuses = [
        "unpacked nvidia-smi",
        "half-configured nvidia-kernel-dkms",
        "triggers-pending libcuda1",
        "half-installed nvidia-open",
    ]
    lines = " ".join(f"'package {status} 550.163.01-2'" for status in statuses)
    host.program("dpkg-query", f'printf "%s\\n" {lines}')
    assert set(seen(host).nvidia.packages) == {"nvidia-smi", "nvidia-kernel-dkms", "libcuda1"}


def test_metapackages_of_headers_are_told_from_the_driver_and_from_those_of_one_kernel(host: Host) -> None:
    asked = 'case "$*" in *"linux-headers-[a-z]*"*)'
    names = ("linux-headers-cloud-amd64", "proxmox-default-headers", "libcuda1")
    lines = " ".join(f"'package installed {name} 1'" for name in names)
    host.program("dpkg-query", f'{asked} printf "%s\\n" {lines} ;; esac')
    found = seen(host)
    assert found.header_packages == ("linux-headers-cloud-amd64", "proxmox-default-headers")
    assert set(found.nvidia.packages) == {"libcuda1"}


def test_every_package_of_the_catalog_is_looked_for() -> None:
    patterns = (*nvidia.PACKAGES, *nvidia.HEADERS)
    for distribution in load().distributions.values():
        for offer in distribution.drivers:
            for names in offer.packages.values():
                for release in ("", "6.1.0-25-cloud-amd64", "6.17.2-2-pve"):
                    for name in distribution.packages_for(names, release):
                        assert any(fnmatchcase(name, pattern) for pattern in patterns), name


@pytest.mark.parametrize(
    ("kernels", "newest"),
    [
        ((), ""),
        (("vmlinuz-6.12.9+deb13-amd64", "vmlinuz-6.12.57+deb13-amd64"), "6.12.57+deb13-amd64"),
        (("vmlinuz-6.1.0-9-amd64", "vmlinuz-6.1.0-41-amd64", "vmlinuz-6.1.0-50-amd64.dpkg-tmp"), "6.1.0-41-amd64"),
        (
            ("vmlinuz", "vmlinuz.old", "vmlinuz-6.8.0-90-generic", "vmlinuz-6.8.0-88-generic.old", "config-9.9"),
            "6.8.0-90-generic",
        ),
    ],
)
def test_the_kernel_that_boots_next_is_the_newest(host: Host, kernels: tuple[str, ...], newest: str) -> None:
    for name in kernels:
        host.file(f"boot/{name}")
    assert seen(host).next_kernel == newest


def test_the_headers_are_those_of_the_kernel_that_boots_next(host: Host) -> None:
    host.program("uname", "echo 6.12.9+deb13-amd64")
    host.file("boot/vmlinuz-6.12.57+deb13-amd64")
    host.file("lib/modules/6.12.9+deb13-amd64/build/Makefile")
    host.link("lib/modules/6.12.57+deb13-amd64/build", host.root / "usr/src/gone")
    assert not seen(host).headers
    host.file("usr/src/gone/Makefile")
    assert seen(host).headers


def test_dkms_tells_whether_it_has_built_the_module_for_that_kernel(host: Host) -> None:
    host.file("boot/vmlinuz-6.12.57+deb13-amd64")
    tree = "var/lib/dkms/nvidia-current/550.163.01"
    host.file("var/lib/dkms/nvidia-fs/2.1/source/Makefile")
    assert seen(host).nvidia.dkms is None
    host.link(f"{tree}/source", host.root / "usr/src/gone")
    host.file(f"{tree}/6.12.9+deb13-amd64/x86_64/module/nvidia-current.ko.xz")
    assert seen(host).nvidia.dkms is False
    host.file(f"{tree}/6.12.57+deb13-amd64/x86_64/module/nvidia-current.ko.xz")
    assert seen(host).nvidia.dkms is True


KERNEL_LOG = """\
Linux version 6.12.57+deb13-amd64
[   T412] NVRM: The NVIDIA GPU 0000:09:00.0 (PCI ID: 10de:1d01)
              NVRM: installed in this system is not supported by open
NVRM: API mismatch: the client 'nvidia-smi' (pid 812)
NVRM: API mismatch: the client 'nvidia-smi' (pid 813)
NVRM: Xid (PCI:0000:01:00): 31, pid=812, name=llama-server, MMU Fault
NVRM: Xid (PCI:0000:01:00): 79, pid=812, name=llama-server, GPU has fallen off the bus.
vfio-pci 0000:01:00.0: Unable to change power state from D3cold to D0, device inaccessible
Loading of unsigned module is rejected
usb 1-1: new device"""


def test_of_the_kernels_log_only_what_matters_is_kept_and_once(host: Host) -> None:
    host.file("log", KERNEL_LOG)
    host.program("dmesg", f'[ "$*" = --notime ] && cat {host.root}/log')
    assert seen(host).log == (
        "NVRM: The NVIDIA GPU 0000:09:00.0 (PCI ID: 10de:1d01)",
        "NVRM: installed in this system is not supported by open",
        "NVRM: API mismatch: the client 'nvidia-smi' (pid)",
        "NVRM: Xid (PCI:0000:01:00): 79, pid, name=llama-server, GPU has fallen off the bus.",
        "vfio-pci 0000:01:00.0: Unable to change power state from D3cold to D0, device inaccessible",
        "Loading of unsigned module is rejected",
    )


def test_a_long_log_is_cut(host: Host) -> None:
    host.program("dmesg", "seq -f 'NVRM: %g' 100000")
    assert len(seen(host).log) == nvidia.LINES


def test_what_the_kernel_was_told_to_pass_through_is_seen(host: Host) -> None:
    assert seen(host).passthrough == ()
    host.file("proc/cmdline", "root=/dev/sda1 gpuquilt.passthrough=0000:0e:00.0/10de:1b06,0000:0e:00.1/10de:10ef quiet")
    assert seen(host).passthrough == ("0000:0e:00.0/10de:1b06", "0000:0e:00.1/10de:10ef")


def test_a_reboot_that_the_packages_ask_for_is_seen(host: Host) -> None:
    assert not seen(host).reboot_wanted
    host.file("run/reboot-required")
    assert seen(host).reboot_wanted


@pytest.mark.parametrize(
    ("byte", "mokutil", "expected"),
    [
        (1, "exit 1", True),
        (0, "exit 1", False),
        (1, 'echo "SecureBoot enabled"', True),
        (0, 'echo "SecureBoot disabled"', False),
        (1, 'echo "SecureBoot enabled"; echo "SecureBoot validation is disabled in shim"', False),
        (None, 'echo "This system doesn\'t support Secure Boot"', False),
        (None, "exit 1", None),
    ],
)
def test_secure_boot_is_asked_of_mokutil_or_else_of_the_firmware(
    host: Host, byte: int | None, mokutil: str, expected: bool | None
) -> None:
    host.file("sys/firmware/efi/systab")
    host.program("mokutil", f'[ "$1" = --sb-state ] || exit 1\n{mokutil}')
    if byte is not None:
        host.file(SECURE_BOOT)
        (host.root / SECURE_BOOT).write_bytes(bytes([6, 0, 0, 0, byte]))
    assert seen(host).secure_boot is expected


def test_without_uefi_nothing_is_said_of_secure_boot(host: Host) -> None:
    host.program("mokutil", 'echo "SecureBoot disabled"')
    assert seen(host).secure_boot is None


@pytest.mark.parametrize("key", ["var/lib/dkms/mok.pub", "var/lib/shim-signed/mok/MOK.der"])
def test_the_hosts_own_key_is_enrolled_if_mokutil_says_so(host: Host, key: str) -> None:
    host.file("sys/firmware/efi/systab")
    host.file(key)
    host.program("mokutil", '[ "$1" = --test-key ] && echo "$2 is not enrolled"')
    assert not seen(host).own_key_enrolled
    host.program("mokutil", '[ "$1" = --test-key ] && echo "$2 is already enrolled"; exit 1')
    assert seen(host).own_key_enrolled


@pytest.mark.parametrize(
    ("line", "loaded", "flavour"),
    [
        (PROPRIETARY, "580.95.05", "proprietary"),
        (OPEN, "595.71.05", "open"),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  390.157  Wed Oct 12 09:19:07 UTC 2022", "390.157", "proprietary"),
        ("NVRM version: something new", "", None),
    ],
)
def test_the_module_that_runs_tells_its_flavour(line: str, loaded: str, flavour: str | None) -> None:
    found = nvidia.parse([f"running {line.removeprefix('NVRM version: ')}"])
    assert found.nvidia == Nvidia(loaded=loaded, loaded_flavour=flavour)  # type: ignore[arg-type]


def test_what_a_gpu_does_not_tell_is_not_known() -> None:
    row = "smi 00000001:3B:00.0, [N/A], [Not Supported], ERR!, [Unknown Error], [N/A], [N/A], [N/A], [N/A], [N/A], [N/A]"
    assert nvidia.parse([row]).nvidia == Nvidia(gpus={"0001:3b:00.0": NvidiaGpu()})


def test_two_gpus_and_a_complaint_are_all_kept() -> None:
    said = [f"smi {ROW}", f"smi {ROW.replace(':01:', ':02:')}", "smi WARNING: infoROM is corrupted at gpu 0000:02:00.0"]
    found = nvidia.parse(said).nvidia
    assert set(found.gpus) == {"0000:01:00.0", "0000:02:00.0"}
    assert found.problem == "WARNING: infoROM is corrupted at gpu 0000:02:00.0"


KEYS = [
    "kernel",
    "next",
    "headers",
    "dkms",
    "log",
    "efi",
    "mokutil",
    "key",
    "reboot",
    "running",
    "loaded",
    "version",
    "license",
    "package",
    "smi",
]


@given(st.lists(st.text() | st.builds(lambda key, value: f"{key} {value}", st.sampled_from(KEYS), st.text())))
def test_no_output_makes_the_parser_raise(lines: list[str]) -> None:
    nvidia.parse(lines)


@given(st.lists(st.text(st.characters(exclude_characters=",")) | st.sampled_from(["00000000:01:00.0", "12", "P2"]), max_size=12))
def test_no_row_of_nvidia_smi_makes_the_parser_raise(cells: list[str]) -> None:
    nvidia.parse([f"smi 00000000:01:00.0, {', '.join(cells)}"])
