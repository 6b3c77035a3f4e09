"""What went wrong in the field, as the hosts said it, and what the plan makes of it before anything is changed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from roles.cluster.plan import Host, Plan
from roles.gpus import lspci, nvidia
from roles.gpus.catalog import load
from roles.gpus.host import see
from roles.gpus.state import Kind
from tests.unit.cluster.examples import ADA, BLACKWELL, PASCAL, gpu_worker, head, loaded, plan_of

GP102 = "0000:01:00.0 NVIDIA Corporation GP102 [GeForce GTX 1080 Ti]"


def recorded(card: str, *drivers: str, system: str = "debian13", **settings: Any) -> Host:
    """A worker by what it said.

    :param card: what lspci printed of it
    :param drivers: what the command printed that looks at drivers
    """
    found = nvidia.parse(drivers)
    gpus = tuple(see([], lspci.parse(card), found, load()))
    return replace(gpu_worker(system=system, **settings), gpus=gpus, drivers=found)


def planned(*workers: Host) -> Plan:
    return plan_of([*workers, head()])


def test_b1_a_mismatch_is_a_reboot_and_no_reason_to_install_anything() -> None:
    plan = planned(
        recorded(
            f"{PASCAL}\n\tKernel driver in use: nvidia",
            "kernel 6.8.0-45-generic",
            "next 6.8.0-45-generic",
            "running NVIDIA UNIX x86_64 Kernel Module  550.90.07  Fri May 31 09:35:42 UTC 2024",
            "version 550.107.02",
            "license NVIDIA",
            "package installed nvidia-driver-550 550.107.02-0ubuntu0.24.04.1",
            "smi Failed to initialize NVML: Driver/library version mismatch",
            system="ubuntu24.04",
        )
    )
    machine = plan.machines["w1"]
    assert plan.refusals == ()
    assert (machine.steps, machine.must_reboot) == ((), True)
    assert machine.reboot == (
        "NVIDIA driver 550.90.07 (proprietary module) is loaded and 550.107.02 (proprietary module) is installed"
    )


def test_b3_the_flavour_is_that_of_the_oldest_card_and_two_that_exclude_each_other_are_refused() -> None:
    there = planned(gpu_worker(PASCAL, ADA, system="ubuntu24.04")).machines["w1"].driver
    assert there is not None
    assert there.flavour == "proprietary"
    assert planned(gpu_worker(PASCAL, BLACKWELL)).refusals == (
        f"w1: {GP102} and 0000:05:00.0 NVIDIA Corporation GB206 [GeForce RTX 5060 Ti] cannot share one kernel: Pascal needs the"
        " proprietary module, of branch 580 or older, and Blackwell the open one: pass one of them through to a virtual machine"
        " (`passthrough`), or put it into another host.",
    )


def test_b3_the_open_module_that_is_there_is_replaced() -> None:
    machine = planned(
        recorded(
            f"{PASCAL}\n\tKernel driver in use: nvidia",
            "running NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (root@host)",
            "version 580.95.05",
            "license Dual MIT/GPL",
            "package installed nvidia-kernel-open-dkms 580.95.05-1",
            "smi No devices were found",
            system="debian12",
        )
    ).machines["w1"]
    assert machine.steps[0] == f"remove NVIDIA driver 580.95.05 (open module), because the open module cannot drive {GP102}"
    assert machine.steps[1].startswith("install NVIDIA driver 580.178.04 (proprietary module) from NVIDIA's repository: ")
    assert machine.must_reboot


CLOUD = (
    "kernel 6.1.0-25-cloud-amd64",
    "next 6.1.0-25-cloud-amd64",
    "headers",
    "running NVIDIA UNIX x86_64 Kernel Module  535.261.03  Thu Apr 24 13:11:26 UTC 2025",
    "version 535.261.03",
    "license NVIDIA",
    "dkms built",
    "package installed nvidia-kernel-dkms 535.261.03-1",
    "package installed libcuda1 535.261.03-1",
    "package installed nvidia-smi 535.261.03-1",
    "package installed nvidia-persistenced 535.261.03-1",
)


def test_b5_a_missing_metapackage_of_headers_is_added_to_a_driver_that_works() -> None:
    card = f"{PASCAL}\n\tKernel driver in use: nvidia"
    machine = planned(recorded(card, *CLOUD, system="debian12")).machines["w1"]
    assert machine.driver is not None
    assert machine.driver.source == "loaded"
    packages = ("linux-headers-cloud-amd64", "nvidia-kernel-dkms", "libcuda1", "nvidia-smi", "nvidia-persistenced")
    assert machine.driver.packages == packages
    assert machine.steps == ("complete NVIDIA driver 535.261.03 (proprietary module): install linux-headers-cloud-amd64",)
    assert not machine.must_reboot
    done = recorded(card, *CLOUD, "package installed linux-headers-cloud-amd64 6.1.164-1", system="debian12")
    after = planned(done).machines["w1"]
    assert (after.steps, after.driver) == ((), machine.driver)


def test_b5_a_driver_without_a_module_for_the_next_kernel_is_built_and_not_rebooted_for() -> None:
    lines = [line for line in CLOUD if line.split()[0] not in ("version", "license", "dkms", "headers")]
    newer = [line.replace("next 6.1.0-25", "next 6.1.0-26") for line in lines]
    machine = planned(recorded(f"{PASCAL}\n\tKernel driver in use: nvidia", *newer, "dkms known", system="debian12")).machines[
        "w1"
    ]
    assert machine.driver_state is not None
    assert machine.driver_state.sentence == (
        "NVIDIA driver 535.261.03 has no module for the kernel that boots next (6.1.0-26-cloud-amd64), since its headers are"
        " missing: install them, and let DKMS build it (deploys/prepare.py does that); where there are none any more, upgrade the"
        " kernel."
    )
    assert machine.steps == (
        "complete NVIDIA driver 535.261.03 (proprietary module): install linux-headers-6.1.0-26-cloud-amd64,"
        " linux-headers-cloud-amd64",
        "have the module of NVIDIA driver 535.261.03 (proprietary module) built for the kernel that boots next,"
        " 6.1.0-26-cloud-amd64",
    )
    assert not machine.must_reboot


def test_b5_a_driver_of_nvidias_installer_is_left_alone_and_warned_about() -> None:
    plan = planned(
        recorded(
            f"{PASCAL}\n\tKernel driver in use: nvidia",
            "kernel 6.12.48+deb13-amd64",
            "next 6.12.57+deb13-amd64",
            "running NVIDIA UNIX x86_64 Kernel Module  580.95.05  Tue Sep 23 10:11:16 UTC 2025",
        )
    )
    machine = plan.machines["w1"]
    assert machine.driver is not None
    assert (machine.driver.source, machine.driver.packages, machine.steps) == ("loaded", (), ())
    assert plan.warnings == (
        "w1: NVIDIA driver 580.95.05 has no module for the kernel that boots next (6.12.57+deb13-amd64), and DKMS does not know"
        " of it: run its installer for that kernel.",
    )


def test_b6_nouveau_is_a_reboot_and_no_failed_installation() -> None:
    machine = planned(
        recorded(
            f"{PASCAL}\n\tKernel driver in use: nouveau\n\tKernel modules: nouveau, nvidia",
            "version 550.163.01",
            "license NVIDIA",
            "package installed nvidia-kernel-dkms 550.163.01-2",
            "package installed libcuda1 550.163.01-2",
            "package installed nvidia-smi 550.163.01-2",
            "package installed nvidia-persistenced 550.163.01-2",
            "package installed linux-headers-amd64 6.12.57-1",
        )
    ).machines["w1"]
    assert (machine.steps, machine.must_reboot) == ((), True)
    assert machine.reboot == ("nouveau holds 0000:01:00.0, and NVIDIA driver 550.163.01 (proprietary module) is installed")


ENROL = (
    "which DKMS signs with a key of this host (/var/lib/dkms/mok.pub) that is not enrolled: install dkms and mokutil, make the"
    " key if it is not there (`openssl req -new -x509 -nodes -days 36500 -subj '/CN=DKMS' -newkey rsa:2048"
    " -keyout /var/lib/dkms/mok.key -outform DER -out /var/lib/dkms/mok.pub`), run `mokutil --import /var/lib/dkms/mok.pub`,"
    " reboot and confirm at the console, or turn Secure Boot off in the firmware."
)


def test_b7_secure_boot_without_an_enrolled_key_stops_before_anything_is_installed() -> None:
    plan = planned(recorded(PASCAL, "efi    1", "mokutil SecureBoot enabled", "key /var/lib/dkms/mok.pub is not enrolled"))
    assert plan.refusals == (f"w1: Secure Boot is on and would refuse the module of NVIDIA driver 550, {ENROL}",)


def test_b7_a_module_that_the_kernel_has_refused_is_no_reboot() -> None:
    """Whoever built it: an unsigned one of NVIDIA's installer."""
    plan = planned(
        recorded(
            PASCAL,
            "mokutil SecureBoot enabled",
            "efi    1",
            "version 550.163.01",
            "license NVIDIA",
            "log Loading of unsigned module is rejected",
        )
    )
    (refusal,) = plan.refusals
    assert refusal.startswith("w1: Secure Boot refuses the module of NVIDIA driver 550.163.01, because the key")
    assert not plan.machines["w1"].must_reboot


def test_b15_an_image_that_is_newer_than_the_driver_is_refused_before_it_is_built() -> None:
    """nvidia-smi said CUDA 13.0, which is driver 580, and the base was nvidia/cuda:13.2.0-devel."""
    image = "nvidia/cuda:13.2.0-devel-ubuntu24.04"
    worker = gpu_worker(ADA, drivers=loaded("580.95.05", "open"), runtime="docker", build_image=image)
    assert planned(worker).refusals == (
        "w1: CUDA 13.2 of `build_image` was made with NVIDIA driver 595.58.03, and this host's is 580.95.05: choose CUDA 13.0, or"
        " a newer driver, or insist with `cuda_minor_version_compatibility = True`.",
    )


AMPERE = "02:00.0 VGA compatible controller [0300]: NVIDIA Corporation GA102 [GeForce RTX 3090] [10de:2204] (rev a1)"


def cards(**settings: Any) -> list[Host]:
    """Compute capabilities 6.1, 8.6 and 12.0 on three hosts that share one toolkit."""
    workers = {"w1": (PASCAL, "proprietary"), "w2": (AMPERE, "open"), "w3": (BLACKWELL, "open")}
    return [
        gpu_worker(
            card,
            name=name,
            address=f"192.0.2.{11 + number}",
            system="debian12",
            drivers=loaded("580.95.05", flavour),  # type: ignore[arg-type]
            cuda_shared_toolkit=True,
            **settings,
        )
        for number, (name, (card, flavour)) in enumerate(workers.items())
    ]


def test_b16_a_toolkit_that_has_dropped_a_card_is_refused() -> None:
    first, *others = planned(*cards(cuda_toolkit="13.0")).refusals
    assert first == "w1: CUDA 13.0 does not compile for 61-real: choose CUDA 12.9, or leave both to the GPUs."
    assert all("does not compile for 61-real" in refusal for refusal in others)


@pytest.mark.parametrize("settings", [{"cuda_toolkit": "12.9"}, {}])
def test_b16_one_toolkit_for_all_names_their_architectures_and_never_native(settings: dict[str, Any]) -> None:
    plan = planned(*cards(**settings))
    assert plan.refusals == ()
    for name in ("w1", "w2", "w3"):
        host = plan.hosts[name]
        assert host.compute.toolkit == "12.9"
        assert host.compute.architectures == ("61-real", "86-real", "120a-real")
        assert host.profile.options["CMAKE_CUDA_ARCHITECTURES"] == "61-real;86-real;120a-real"
        assert host.profile.options["GGML_NATIVE"] in ("OFF", False)


def test_b19_a_dead_card_is_refused_with_what_helps_and_no_driver_is_planned() -> None:
    card = f"{PASCAL.replace('rev a1', 'rev ff')}\n\t!!! Unknown header type 7f\n\tKernel driver in use: nvidia"
    line = "log nvidia 0000:01:00.0: Unable to change power state from D3cold to D0, device inaccessible"
    plan = planned(recorded(card, line))
    (refusal,) = plan.refusals
    assert refusal.startswith(f"w1: {GP102} is unreachable (0000:01:00.0 reads all ones")
    assert "no driver can help; switch the machine off and on again" in refusal
    assert (plan.machines["w1"].steps, plan.machines["w1"].must_reboot) == ((), False)
    told = plan.machines["w1"].driver_state
    assert told is not None
    assert told.kind is Kind.UNREACHABLE


def test_b19_a_card_that_only_the_driver_knows_to_be_lost_is_refused_too() -> None:
    plan = planned(
        recorded(
            f"{PASCAL}\n\tKernel driver in use: nvidia",
            "running NVIDIA UNIX x86_64 Kernel Module  580.95.05  Tue Sep 23 10:11:16 UTC 2025",
            "version 580.95.05",
            "log NVRM: Xid (PCI:0000:01:00): 79, pid, name=llama-server, GPU has fallen off the bus.",
            "smi Unable to determine the device handle for GPU 0000:01:00.0: Unknown Error",
        )
    )
    (refusal,) = plan.refusals
    assert refusal.startswith(
        "w1: 0000:01:00.0 is unreachable (it has fallen off the bus): no driver can help, so do not install"
    )
    assert (plan.machines["w1"].steps, plan.machines["w1"].must_reboot) == ((), False)


@pytest.mark.parametrize(
    ("link", "warned"),
    [
        ("P8, 0, 1, 4, 16, 16", None),
        ("P0, 0, 3, 3, 4, 16", "is narrow: 4 of 16 lanes at 0000:02:00.0: 11.8 GB/s are lost; the port above it was not seen."),
        (
            "P0, 97, 1, 3, 16, 16",
            "is slow: 16 of 16 lanes at 0000:02:00.0, at 2.5 of 8 GT/s under a load of 97 %: 11.8 GB/s are lost.",
        ),
    ],
)
def test_b21_a_link_never_stops_a_run(link: str, warned: str | None) -> None:
    plan = planned(
        recorded(
            f"{AMPERE}\n\tKernel driver in use: nvidia",
            "running NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build",
            "version 580.95.05",
            f"smi 00000000:02:00.0, 24576, 9, {link}, Disabled, 8.6",
        )
    )
    assert plan.refusals == ()
    name = "w1: the link of 0000:02:00.0 NVIDIA Corporation GA102 [GeForce RTX 3090]"
    assert plan.warnings == (() if warned is None else (f"{name} {warned}",))
