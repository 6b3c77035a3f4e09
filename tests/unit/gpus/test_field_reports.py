"""What went wrong in the field, as the hosts said it, and the sentence that the user reads of NVIDIA's driver and the card."""

from __future__ import annotations

import pytest

from roles.gpus import lspci, nvidia
from roles.gpus.catalog import load
from roles.gpus.gpu import Gpu
from roles.gpus.host import see
from roles.gpus.link import Verdict
from roles.gpus.state import Kind, State, state

PASCAL = "01:00.0 VGA compatible controller [0300]: NVIDIA Corporation GP102 [GeForce GTX 1080 Ti] [10de:1b06] (rev a1)"


def told(card: str, *drivers: str) -> State:
    """What is said of a host.

    :param card: what lspci printed of it
    :param drivers: what the command printed that looks at drivers
    """
    found = nvidia.parse(drivers)
    return state(found, see([], lspci.parse(card), found, load()), load())


def test_b1_an_unattended_upgrade_under_the_running_module() -> None:
    found = told(
        f"{PASCAL}\n\tKernel driver in use: nvidia\n\tKernel modules: nouveau, nvidia",
        "kernel 6.8.0-45-generic",
        "next 6.8.0-45-generic",
        "running NVIDIA UNIX x86_64 Kernel Module  550.90.07  Fri May 31 09:35:42 UTC 2024",
        "version 550.107.02",
        "license NVIDIA",
        "dkms built",
        "package installed nvidia-driver-550 550.107.02-0ubuntu0.24.04.1",
        "log NVRM: API mismatch: the client 'nvidia-smi' (pid)",
        "log NVRM: has the version 550.107.02, but this kernel module has",
        "log NVRM: the version 550.90.07.  Please make sure that this",
        "smi Failed to initialize NVML: Driver/library version mismatch",
        "smi NVML library version: 550.107",
    )
    assert found == State(
        Kind.MISMATCH,
        "NVIDIA's module 550.90.07 is loaded, and its libraries are 550.107.02, as after an upgrade: reboot, and do not install"
        " the driver again.",
        reboot=True,
    )


def test_b1_is_seen_without_nvidia_smi_too() -> None:
    found = told(
        f"{PASCAL}\n\tKernel driver in use: nvidia",
        "running NVIDIA UNIX x86_64 Kernel Module  550.90.07  Fri May 31 09:35:42 UTC 2024",
        "package installed nvidia-driver-550 550.107.02-0ubuntu0.24.04.1",
    )
    assert (found.kind, found.reboot) == (Kind.MISMATCH, True)


GSP = (
    "log NVRM: The NVIDIA GPU 0000:09:00.0 (PCI ID: 10de:1bb3)",
    "log NVRM: installed in this system is not supported by open",
    "log NVRM: nvidia.ko because it does not include the required GPU",
    "log NVRM: System Processor (GSP).",
)
P4 = "09:00.0 3D controller [0302]: NVIDIA Corporation GP104GL [Tesla P4] [10de:1bb3] (rev a1)\n\tKernel driver in use: nvidia"


@pytest.mark.parametrize(
    "card", [P4, P4.replace("GP104GL [Tesla P4]", "Device 1bb3"), P4.replace("10de:1bb3", "10de:ffff").replace("GP104GL ", "")]
)
def test_b3_the_open_module_on_a_card_without_gsp(card: str) -> None:
    """Also where the catalog does not know the card: then the kernel's word is enough."""
    found = told(
        card,
        "running NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (root@truenas)",
        "version 580.95.05",
        "license Dual MIT/GPL",
        *GSP,
        "smi No devices were found",
    )
    assert found == State(
        Kind.WRONG_FLAVOUR,
        "NVIDIA driver 580.95.05 is installed with the open module, which cannot drive 0000:09:00.0, since that has no GPU System"
        " Processor (GSP): put the proprietary one there (deploys/prepare.py does that).",
    )


def test_b3_is_over_once_the_other_module_is_installed() -> None:
    found = told(
        P4,
        "running NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (root@truenas)",
        "version 580.95.05",
        "license NVIDIA",
        *GSP,
        "smi No devices were found",
    )
    assert found == State(
        Kind.REBOOT_OWED,
        "NVIDIA driver 580.95.05 (open module) is loaded and 580.95.05 (proprietary module) is installed: reboot.",
        reboot=True,
    )


def test_b5_the_driver_that_a_kernel_without_headers_has_taken_away() -> None:
    found = told(
        f"{PASCAL}\n\tKernel modules: nouveau",
        "kernel 6.1.0-26-cloud-amd64",
        "next 6.1.0-26-cloud-amd64",
        "dkms known",
        "package installed nvidia-kernel-dkms 535.261.03-1",
        "package installed libcuda1 535.261.03-1",
    )
    assert found == State(
        Kind.NOT_BUILT,
        "NVIDIA driver 535.261.03 has no module for the kernel that boots next (6.1.0-26-cloud-amd64), since its headers are"
        " missing: install them, and let DKMS build it (deploys/prepare.py does that); where there are none any more, upgrade the"
        " kernel.",
    )


def test_b5_is_seen_before_the_reboot_that_it_would_break() -> None:
    found = told(
        f"{PASCAL}\n\tKernel driver in use: nvidia",
        "kernel 6.1.0-25-cloud-amd64",
        "next 6.1.0-26-cloud-amd64",
        "running NVIDIA UNIX x86_64 Kernel Module  535.261.03  Thu Apr 24 13:11:26 UTC 2025",
        "dkms known",
        "package installed nvidia-kernel-dkms 535.261.03-1",
        "smi 00000000:01:00.0, 11264, 3, P8, 0, 1, 3, 16, 16, Disabled, 6.1",
    )
    assert found.kind is Kind.NOT_BUILT
    assert not found.reboot


def test_b6_nouveau_holds_the_card() -> None:
    found = told(
        f"{PASCAL}\n\tKernel driver in use: nouveau\n\tKernel modules: nouveau, nvidia",
        "kernel 6.12.57+deb13-amd64",
        "next 6.12.57+deb13-amd64",
        "version 550.163.01",
        "license NVIDIA",
        "dkms built",
        "package installed nvidia-kernel-dkms 550.163.01-2",
        "log NVRM: The NVIDIA probe routine was not called for 3 device(s).",
        "log NVRM: This can occur when a driver such as:",
        "log NVRM: nouveau, rivafb, nvidiafb or rivatv",
        "log NVRM: was loaded and obtained ownership of the NVIDIA device(s).",
    )
    assert found == State(
        Kind.NOUVEAU, "nouveau holds 0000:01:00.0, and NVIDIA driver 550.163.01 is installed: reboot.", reboot=True
    )


SECURE_BOOT = (
    "Secure Boot refuses the module of NVIDIA driver 550.163.01, because the key that it is signed with is not enrolled: run"
    " `mokutil --import` with the key of DKMS (/var/lib/dkms/mok.pub, on Ubuntu /var/lib/shim-signed/mok/MOK.der), reboot and"
    " confirm at the console, or turn Secure Boot off in the firmware."
)


@pytest.mark.parametrize(
    "line",
    [
        "key /var/lib/dkms/mok.pub is not enrolled",
        "log Loading of module with unavailable key is rejected",
        "log systemd-modules-load[312]: Failed to insert module 'nvidia': Key was rejected by service",
        "log modprobe: ERROR: could not insert 'nvidia': Required key not available",
    ],
)
def test_b7_secure_boot_refuses_the_module(line: str) -> None:
    found = told(
        f"{PASCAL}\n\tKernel modules: nouveau, nvidia",
        "efi    1",
        "mokutil SecureBoot enabled",
        "version 550.163.01",
        "license NVIDIA",
        "package installed nvidia-kernel-dkms 550.163.01-2",
        line,
    )
    assert found == State(Kind.SECURE_BOOT, SECURE_BOOT)


def dead(why: str, address: str = "0000:01:00.0") -> str:
    return (
        f"{address} is unreachable ({why}): no driver can help, so do not install it again; switch the machine off and on again,"
        " its hypervisor too if it is a virtual one, and look at slot and power, or take the card out."
    )


def test_b19_a_card_that_reads_all_ones() -> None:
    found = told(
        "01:00.0 VGA compatible controller: NVIDIA Corporation Device (rev ff)",
        "log vfio-pci 0000:01:00.0: Unable to change power state from D3cold to D0, device inaccessible",
    )
    why = "0000:01:00.0 reads all ones: it is off the bus, or without power as a hybrid GPU is while it sleeps"
    assert found == State(Kind.UNREACHABLE, dead(why))


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (
            ("log nvidia 0000:01:00.0: Unable to change power state from D3cold to D0, device inaccessible",),
            "it does not wake from D3cold",
        ),
        (
            (
                "log NVRM: The NVIDIA GPU 0000:01:00.0",
                "log NVRM: (PCI ID: 10de:25a0) installed in this system has",
                "log NVRM: fallen off the bus and is not responding to commands.",
            ),
            "it has fallen off the bus",
        ),
        (("log NVRM: Xid (PCI:0000:01:00): 79, pid, name=x, GPU has fallen off the bus.",), "it has fallen off the bus"),
        (("log NVRM: GPU 0000:01:00.0: GPU has fallen off the bus.",), "it has fallen off the bus"),
        (("smi Unable to determine the device handle for GPU 0000:01:00.0: Unknown Error",), "nvidia-smi has lost it"),
        (
            ("smi Unable to determine the device handle for GPU 0000:01:00.0: GPU is lost.  Reboot the system to recover it",),
            "nvidia-smi has lost it",
        ),
    ],
)
def test_b19_a_card_that_only_driver_and_kernel_know_to_be_lost(lines: tuple[str, ...], why: str) -> None:
    found = told(f"{PASCAL}\n\tKernel driver in use: nvidia", "version 550.163.01", "license NVIDIA", *lines)
    assert found == State(Kind.UNREACHABLE, dead(why))


def cards(*rows: str, load_percent: int = 0) -> list[Gpu]:
    """GPUs in a guest, whose links nvidia-smi alone knows.

    :param rows: index,gen.current,gen.max,width.current,width.max,pstate
    """
    lines, said = [], []
    for row in rows:
        index, *link, performance = row.split(", ")
        lines.append(f"0{index}:00.0 VGA compatible controller [0300]: NVIDIA Corporation GA102 [10de:2204]")
        said.append(f"smi 00000000:0{index}:00.0, 24576, 9, {performance}, {load_percent}, {', '.join(link)}, Disabled, 8.6")
    return see([], lspci.parse("\n".join(lines)), nvidia.parse(said), load())


@pytest.mark.parametrize(
    ("row", "verdict", "reason"),
    [
        ("0, 1, 4, 16, 16, P8", Verdict.IDLE, "16 of 16 lanes at 0000:00:00.0, at 2.5 of 16 GT/s to save power"),
        (
            "1, 3, 3, 4, 16, P0",
            Verdict.NARROW,
            "4 of 16 lanes at 0000:01:00.0: 11.8 GB/s are lost; the port above it was not seen",
        ),
        (
            "2, 1, 3, 16, 16, P0",
            Verdict.SLOW,
            "16 of 16 lanes at 0000:02:00.0, at 2.5 of 8 GT/s under a load of 97 %: 11.8 GB/s are lost",
        ),
    ],
)
def test_b21_a_slow_link_at_rest_is_good_and_a_narrow_one_is_not(row: str, verdict: Verdict, reason: str) -> None:
    (gpu,) = cards(row, load_percent=97 if row.startswith("2") else 0)
    assert gpu.link is not None
    assert (gpu.link.verdict, gpu.link.reason) == (verdict, reason)
