"""NVIDIA's driver on a host: which stays, and which is to come from where."""

from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from roles.cluster.driver import Driver
from roles.cluster.plan import Host, Plan, make_plan
from roles.cluster.provision import MachinePlan
from roles.gpus.catalog import load, numbers
from roles.gpus.driver import Drivers, Nvidia
from tests.unit.cluster.examples import (
    ADA,
    BLACKWELL,
    PASCAL,
    TURING,
    gpu_worker,
    gpus,
    head,
    loaded,
    plan_of,
    refusals_of,
)

CARDS = {"pascal": PASCAL, "turing": TURING, "ada": ADA, "blackwell": BLACKWELL}


def planned(worker: Host, today: date | None = None) -> tuple[MachinePlan, Plan]:
    """What the machine is to be, and the whole plan, in which nothing is refused."""
    plan = plan_of([worker, head()]) if today is None else make_plan([worker, head()], today, load())
    assert plan.refusals == ()
    return plan.machines["w1"], plan


def driver(worker: Host) -> Driver:
    there = planned(worker)[0].driver
    assert there is not None
    return there


@pytest.mark.parametrize(
    ("system", "card", "origin", "version", "flavour", "package"),
    [
        ("debian12", "pascal", "nvidia", "580.178.04", "proprietary", "nvidia-kernel-dkms"),
        ("debian12", "ada", "nvidia", "580.178.04", "open", "nvidia-kernel-open-dkms"),
        ("debian12", "blackwell", "nvidia", "580.178.04", "open", "nvidia-driver-pinning-580"),
        ("debian13", "pascal", "distribution", "550.163.01", "proprietary", "nvidia-kernel-dkms"),
        ("debian13", "turing", "distribution", "550.163.01", "proprietary", "nvidia-kernel-dkms"),
        ("debian13", "blackwell", "nvidia", "595.71.05", "open", "nvidia-kernel-open-dkms"),
        ("ubuntu22.04", "pascal", "distribution", "580.173.02", "proprietary", "linux-modules-nvidia-580-server-generic"),
        ("ubuntu24.04", "blackwell", "distribution", "580.173.02", "open", "linux-modules-nvidia-580-server-open-generic"),
        ("ubuntu26.04", "pascal", "distribution", "580.173.02", "proprietary", "linux-modules-nvidia-580-server-generic"),
        ("ubuntu26.04", "ada", "distribution", "580.173.02", "open", "nvidia-headless-no-dkms-580-server-open"),
    ],
)
def test_the_newest_long_term_branch_that_drives_the_card_or_else_the_distributions_own(
    system: str, card: str, origin: str, version: str, flavour: str, package: str
) -> None:
    there = driver(gpu_worker(CARDS[card], system=system))
    assert (there.source, there.version, there.flavour) == (origin, version, flavour)
    assert there.branch == int(version[:3])
    assert package in there.packages


def test_pascal_brings_the_proprietary_module_to_a_card_that_could_have_the_open_one() -> None:
    assert driver(gpu_worker(PASCAL, ADA, system="ubuntu24.04")).flavour == "proprietary"


def test_what_would_be_done_is_said() -> None:
    there, _ = planned(gpu_worker(PASCAL, system="ubuntu26.04", driver_of_gpus="nouveau"))
    assert there.driver_now is None
    assert there.steps == (
        "install NVIDIA driver 580.173.02 (proprietary module) from the distribution's packages:"
        " linux-modules-nvidia-580-server-generic, nvidia-headless-no-dkms-580-server, nvidia-utils-580-server",
    )
    assert there.reboot == "nouveau holds 0000:01:00.0"


# What is there.


@pytest.mark.parametrize(
    ("card", "version", "flavour"),
    [
        ("pascal", "580.65.06", "proprietary"),
        ("pascal", "535.261.03", "proprietary"),
        ("pascal", "580.65.06", None),
        ("ada", "610.43.02", "open"),
        ("ada", "575.57.08", "proprietary"),
        ("ada", "616.01", "open"),
        ("blackwell", "570.124.06", "open"),
    ],
)
def test_a_driver_that_is_loaded_and_good_enough_stays(card: str, version: str, flavour: Any) -> None:
    there, _ = planned(gpu_worker(CARDS[card], drivers=loaded(version, flavour), driver_of_gpus="nvidia"))
    assert there.driver == there.driver_now == Driver(version, int(version[:3]), flavour, "loaded")
    assert (there.steps, there.reboot) == ((), "")


@pytest.mark.parametrize(
    ("card", "version", "flavour", "why"),
    [
        ("pascal", "595.71.05", "open", "branch 595 has dropped 0000:01:00.0"),
        ("pascal", "580.65.06", "open", "the open module cannot drive 0000:01:00.0"),
        (
            "blackwell",
            "580.65.06",
            "proprietary",
            "0000:05:00.0 NVIDIA Corporation GB206 [GeForce RTX 5060 Ti] needs the open module",
        ),
        ("blackwell", "550.163.01", "open", "branch 550 is too old for 0000:05:00.0"),
        ("ada", "525.60.13", "proprietary", "no CUDA toolkit for 0000:03:00.0"),
    ],
)
def test_a_driver_that_is_not_good_enough_is_replaced_and_the_plan_says_why(
    card: str, version: str, flavour: Any, why: str
) -> None:
    there, _ = planned(gpu_worker(CARDS[card], system="debian12", drivers=loaded(version, flavour)))
    assert there.driver is not None
    assert (there.driver.source, there.driver.version) == ("nvidia", "580.178.04")
    assert there.steps[0].startswith(f"remove NVIDIA driver {version} ({flavour} module), because {why}")
    assert there.steps[1].startswith("install NVIDIA driver 580.178.04 ")
    assert there.reboot == f"NVIDIA driver {version} ({flavour} module) gives way to {there.driver}"


def test_a_driver_that_the_next_boot_would_break_is_replaced_while_it_works() -> None:
    upgraded = Drivers(nvidia=Nvidia("580.65.06", "proprietary", "590.48.01", "open"))
    there, _ = planned(gpu_worker(PASCAL, system="debian12", drivers=upgraded))
    assert there.driver is not None
    assert there.driver.source == "nvidia"
    assert there.steps[0].startswith("remove NVIDIA driver 590.48.01 (open module), because branch 590 has dropped 0000:01:00.0")
    assert there.reboot == "NVIDIA driver 580.65.06 (proprietary module) gives way to 580.178.04 (proprietary module)"


@pytest.mark.parametrize(
    ("nvidia", "holder", "reboot"),
    [
        (Nvidia("580.65.06", None, "580.95.05"), "nvidia", "NVIDIA driver 580.65.06 is loaded and 580.95.05 is installed"),
        (Nvidia(on_disk="580.95.05"), "nouveau", "nouveau holds 0000:01:00.0, and NVIDIA driver 580.95.05 is installed"),
        (Nvidia(on_disk="580.95.05"), None, "NVIDIA driver 580.95.05 is installed and not loaded"),
        (
            Nvidia("580.65.06", None, "580.65.06", problem="Failed to initialize NVML: Driver/library version mismatch"),
            "nvidia",
            "nvidia-smi says 'Failed to initialize NVML: Driver/library version mismatch'",
        ),
    ],
)
def test_a_driver_that_only_wants_a_reboot_is_not_installed_again(nvidia: Nvidia, holder: str | None, reboot: str) -> None:
    there, plan = planned(gpu_worker(PASCAL, drivers=Drivers(nvidia=nvidia), driver_of_gpus=holder))
    assert (there.steps, there.reboot) == ((), reboot)
    assert plan.warnings == ()


@pytest.mark.parametrize(
    ("card", "nvidia", "settings"),
    [
        ("ada", Nvidia("610.43.02", "open", "580.173.02", "open"), {"driver": 580}),
        ("ada", Nvidia("580.173.02", "open", "580.173.02", "proprietary"), {"driver_flavour": "proprietary"}),
        ("pascal", Nvidia("580.173.02", "open", "580.173.02", "proprietary"), {}),
        ("blackwell", Nvidia("550.163.01", "open", "580.173.02", "open"), {}),
        ("blackwell", Nvidia("550.163.01", "open", "580.173.02", "open"), {"driver": "unmanaged"}),
    ],
)
def test_a_driver_that_was_replaced_and_is_still_loaded_is_not_replaced_again(
    card: str, nvidia: Nvidia, settings: dict[str, Any]
) -> None:
    there, plan = planned(gpu_worker(CARDS[card], system="ubuntu24.04", drivers=Drivers(nvidia=nvidia), **settings))
    assert there.driver is not None
    assert str(there.driver) == f"{nvidia.on_disk} ({nvidia.on_disk_flavour} module)"
    assert there.steps == ()
    assert there.reboot == (
        f"NVIDIA driver {nvidia.loaded} ({nvidia.loaded_flavour} module) is loaded and {there.driver} is installed"
    )
    after = Drivers(nvidia=Nvidia(nvidia.on_disk, nvidia.on_disk_flavour, nvidia.on_disk, nvidia.on_disk_flavour))
    _, rebooted = planned(gpu_worker(CARDS[card], system="ubuntu24.04", drivers=after, **settings))
    assert rebooted.hosts["w1"].release == plan.hosts["w1"].release


# What is there and is not done, or could be done better.


def half(*packages: str, version: str = "580.178.04-1", headers: tuple[str, ...] = (), **nvidia: Any) -> Drivers:
    """What a run has left: these packages, their headers apart, and nothing of the module unless that is said."""
    versions = {name: "6.8.0-90.91" if name.startswith("linux-") else version for name in packages}
    return Drivers(
        next_kernel="6.1.0-41-amd64", headers=True, header_packages=headers, nvidia=Nvidia(packages=versions, **nvidia)
    )


DEBIAN = ("nvidia-kernel-dkms", "libcuda1", "nvidia-smi")
NVIDIA = ("nvidia-driver-cuda", "nvidia-kernel-dkms")
UBUNTU = ("libnvidia-compute-580", "nvidia-dkms-580-open", "nvidia-utils-580")
DONE: dict[str, Any] = {"loaded": "580.178.04", "on_disk": "580.178.04", "dkms": True}


@pytest.mark.parametrize(
    ("card", "system", "drivers", "missing"),
    [
        # Broken off in the middle of apt.
        ("pascal", "debian12", half(*NVIDIA[1:]), "nvidia-driver-pinning-580, linux-headers-amd64, nvidia-driver-cuda"),
        ("pascal", "debian13", half(*DEBIAN[:2], version="550.163.01-2"), "linux-headers-amd64, nvidia-smi, nvidia-persistenced"),
        (
            "ada",
            "ubuntu24.04",
            half("linux-modules-nvidia-580-server-open-6.8.0-90-generic", "nvidia-utils-580-server"),
            "linux-modules-nvidia-580-server-open-generic, nvidia-headless-no-dkms-580-server-open",
        ),
        # Done, but for what keeps it with the next kernel.
        ("pascal", "debian12", half(*NVIDIA, **DONE), "linux-headers-amd64"),
        ("ada", "ubuntu24.04", half(*UBUNTU, **DONE), "linux-headers-generic"),
        # Done.
        ("pascal", "debian12", half(*NVIDIA, headers=("linux-headers-amd64",), **DONE), None),
        ("pascal", "debian12", half("nvidia-driver-pinning-580", *NVIDIA, headers=("linux-headers-amd64",), **DONE), None),
    ],
)
def test_what_a_broken_run_left_is_completed_as_it_is(card: str, system: str, drivers: Drivers, missing: str | None) -> None:
    kernel = "6.8.0-90-generic" if system.startswith("ubuntu") else "6.1.0-41-amd64"
    there, _ = planned(gpu_worker(CARDS[card], system=system, drivers=replace(drivers, next_kernel=kernel)))
    assert there.driver is not None
    assert there.driver.source == "loaded"
    assert there.driver.version == drivers.nvidia.packaged
    complete = [step for step in there.steps if step.startswith("complete")]
    assert complete == ([] if missing is None else [f"complete NVIDIA driver {there.driver}: install {missing}"])
    assert set(missing.split(", ") if missing else ()) <= set(there.driver.packages)
    assert not there.must_reboot


def test_what_a_broken_run_left_and_does_not_fit_is_replaced() -> None:
    there, _ = planned(gpu_worker(PASCAL, system="debian12", drivers=half("nvidia-kernel-open-dkms", "nvidia-driver-cuda")))
    assert there.driver is not None
    assert (there.driver.source, there.driver.flavour) == ("nvidia", "proprietary")
    assert there.steps[0].startswith("remove NVIDIA driver 580.178.04 (open module), because the open module cannot drive")
    assert not there.must_reboot, "it never ran"


@pytest.mark.parametrize(
    "packages",
    [
        {},
        {"libcuda1": "550.163.01-2"},
        {"nvidia-tesla-470-kernel-dkms": "580.95.05-1"},
    ],
    ids=["a .run file", "no module among them", "packages that the catalog does not know"],
)
def test_a_driver_that_came_another_way_is_left_as_it_is(packages: dict[str, str]) -> None:
    nvidia = Nvidia("580.95.05", "proprietary", "580.95.05", "proprietary", packages=packages)
    there, _ = planned(gpu_worker(PASCAL, system="debian12", drivers=Drivers(nvidia=nvidia)))
    assert there.driver is not None
    assert (there.driver.source, there.driver.packages, there.steps) == ("loaded", (), ())


def test_a_move_that_was_broken_off_after_the_old_driver_went_goes_on() -> None:
    """What still runs is not installed any more, and would be gone with the next boot."""
    gone = Drivers(kernel="6.1.0-41-amd64", next_kernel="6.1.0-41-amd64", nvidia=Nvidia("580.95.05", "proprietary"))
    there, _ = planned(gpu_worker(PASCAL, system="debian12", drivers=gone))
    assert there.driver is not None
    assert there.driver.source == "nvidia"
    assert there.must_reboot


def test_headers_of_the_very_kernel_are_asked_for_where_they_are_missing() -> None:
    for kernel, name in (("6.1.0-41-amd64", "linux-headers-6.1.0-41-amd64"), ("6.17.2-2-pve", "proxmox-headers-6.17.2-2-pve")):
        packages = driver(gpu_worker(PASCAL, system="debian12", drivers=Drivers(next_kernel=kernel))).packages
        assert packages[0] == name
        packages = driver(gpu_worker(PASCAL, system="debian12", drivers=Drivers(next_kernel=kernel, headers=True))).packages
        assert name not in packages
    built_by_ubuntu = driver(gpu_worker(ADA, system="ubuntu24.04", drivers=Drivers(next_kernel="6.8.0-90-generic")))
    assert not [name for name in built_by_ubuntu.packages if "headers" in name]


def test_hands_off_warns_of_a_module_that_is_missing_for_the_next_kernel() -> None:
    drivers = half(*DEBIAN, version="550.163.01-2", loaded="550.163.01", dkms=False)
    there, plan = planned(gpu_worker(PASCAL, drivers=drivers, driver="unmanaged"))
    assert there.steps == ()
    (warning, _) = plan.warnings
    assert warning.startswith("w1: NVIDIA driver 550.163.01 has no module for the kernel that boots next (6.1.0-41-amd64)")
    assert "deploys/prepare.py" not in warning


def test_a_driver_waits_for_a_card_that_is_not_there_yet_without_a_reboot() -> None:
    there, _ = planned(gpu_worker(gpus=["GP102"], drivers=Drivers(nvidia=Nvidia(on_disk="580.95.05"))))
    assert (there.steps, there.reboot) == ((), "")


def test_what_else_nvidia_smi_complains_about_is_passed_on() -> None:
    nvidia = Nvidia("580.95.05", "proprietary", "580.95.05", problem="No devices were found")
    _, plan = planned(gpu_worker(PASCAL, drivers=Drivers(nvidia=nvidia)))
    assert plan.warnings == ("w1: nvidia-smi says 'No devices were found': see `dmesg` there for NVIDIA's own reason (NVRM).",)


def test_a_reboot_that_the_packages_ask_for_is_owed_on_any_host() -> None:
    plan = plan_of([gpu_worker(), replace(head(), drivers=Drivers(reboot_wanted=True))])
    assert (plan.machines["w1"].reboot, plan.machines["head"].reboot) == ("", "its packages ask for one")


# What the inventory says.


def test_hands_off_means_hands_off() -> None:
    there, plan = planned(gpu_worker(PASCAL, drivers=loaded("575.57.08", "proprietary"), driver="unmanaged"))
    assert there.driver == Driver("575.57.08", 575, "proprietary", "unmanaged")
    assert (there.steps, there.reboot) == ((), "")
    assert there.choices == ("driver = 'unmanaged' from the inventory, in place of 575",)
    assert plan.hosts["w1"].compute.toolkit == "12.9"


def test_hands_off_without_a_driver_needs_a_toolkit() -> None:
    assert refusals_of(gpu_worker(PASCAL, driver="unmanaged")) == [
        "w1: driver = 'unmanaged' and no NVIDIA driver is there, so no CUDA toolkit can be chosen: install a driver,"
        " set `cuda_toolkit`, or leave `driver` out."
    ]
    there, plan = planned(gpu_worker(PASCAL, driver="unmanaged", cuda_toolkit="12.6"))
    assert there.steps == ()
    assert plan.hosts["w1"].compute.toolkit == "12.6"


@pytest.mark.parametrize(
    ("nvidia", "holder", "reboot"),
    [
        (Nvidia("580.65.06", None, "580.95.05"), "nvidia", "NVIDIA driver 580.65.06 is loaded and 580.95.05 is installed"),
        (Nvidia(on_disk="580.95.05"), "nouveau", "nouveau holds 0000:01:00.0, and NVIDIA driver 580.95.05 is installed"),
    ],
)
def test_hands_off_owes_a_reboot_all_the_same(nvidia: Nvidia, holder: str, reboot: str) -> None:
    nvidia = replace(nvidia, problem="Failed to initialize NVML: Driver/library version mismatch")
    there, plan = planned(
        gpu_worker(PASCAL, drivers=Drivers(nvidia=nvidia), driver_of_gpus=holder, driver="unmanaged"),
    )
    assert (there.steps, there.reboot) == ((), reboot)
    assert plan.warnings == ()


def test_hands_off_warns_of_the_boot_that_breaks_it() -> None:
    upgraded = Drivers(nvidia=Nvidia("580.65.06", "proprietary", "590.48.01", "open"))
    there, plan = planned(gpu_worker(PASCAL, drivers=upgraded, driver="unmanaged"))
    assert there.reboot == ""
    assert plan.warnings == (
        "w1: driver = 'unmanaged' and the next boot loads NVIDIA driver 590.48.01 (open module), but branch 590 has dropped"
        f" {GP102}, whose last one is 580: install another one before you reboot.",
    )


def test_hands_off_does_not_make_a_driver_fit() -> None:
    (refusal,) = refusals_of(gpu_worker(PASCAL, driver="unmanaged", drivers=loaded("595.71.05")))
    assert refusal.startswith("w1: driver = 'unmanaged' and branch 595 has dropped 0000:01:00.0")


def test_an_explicit_branch_moves_a_good_driver_and_is_said() -> None:
    there, _ = planned(gpu_worker(ADA, system="ubuntu24.04", drivers=loaded("580.95.05", "open"), driver=595))
    assert there.driver is not None
    assert (there.driver.version, there.driver.source) == ("595.71.05", "nvidia")
    assert there.steps[0] == "remove NVIDIA driver 580.95.05 (open module), because driver = 595 is wanted"
    assert there.choices == ("driver = 595 from the inventory, in place of 580",)


def test_an_explicit_branch_that_is_loaded_stays() -> None:
    there, _ = planned(gpu_worker(ADA, drivers=loaded("610.43.02", "open"), driver=610))
    assert there.driver is not None
    assert there.driver.source == "loaded"
    assert there.choices == ("driver = 610 from the inventory",)


def test_an_explicit_source_and_flavour() -> None:
    there, _ = planned(gpu_worker(ADA, system="ubuntu24.04", driver_source="nvidia", driver_flavour="proprietary"))
    assert there.driver is not None
    assert (there.driver.version, there.driver.source, there.driver.flavour) == ("580.159.04", "nvidia", "proprietary")
    assert there.choices == (
        "driver_source = 'nvidia' from the inventory, in place of distribution",
        "driver_flavour = 'proprietary' from the inventory, in place of open",
    )


@pytest.mark.parametrize(
    "settings", [{"driver_source": "nvidia"}, {"driver": "unmanaged", "driver_source": "nvidia", "driver_flavour": "proprietary"}]
)
def test_a_source_or_flavour_that_decided_nothing_is_not_said(settings: dict[str, Any]) -> None:
    there, _ = planned(gpu_worker(ADA, system="ubuntu24.04", drivers=loaded("580.95.05", "open"), **settings))
    assert [choice for choice in there.choices if not choice.startswith("driver = ")] == []


@pytest.mark.parametrize(
    ("system", "kernel", "settings", "package"),
    [
        ("debian12", "6.1.0-25-cloud-amd64", {}, "linux-headers-cloud-amd64"),
        ("debian13", "6.12.57+deb13-rt-amd64", {}, "linux-headers-rt-amd64"),
        ("debian13", "6.17.2-2-pve", {}, "proxmox-default-headers"),
        ("ubuntu24.04", "6.8.0-88-generic", {}, "linux-modules-nvidia-580-server-open-generic"),
        ("ubuntu24.04", "6.14.0-37-generic", {}, "linux-modules-nvidia-580-server-open-generic-hwe-24.04"),
        ("ubuntu22.04", "6.8.0-1021-aws", {}, "linux-modules-nvidia-580-server-open-aws"),
        ("ubuntu24.04", "6.8.0-88-generic", {"driver_source": "nvidia"}, "linux-headers-generic"),
    ],
)
def test_modules_and_headers_are_those_of_the_kernel_that_boots_next(
    system: str, kernel: str, settings: dict[str, Any], package: str
) -> None:
    drivers = Drivers(kernel="6.18.44-fc-v595", next_kernel=kernel)
    assert package in driver(gpu_worker(ADA, system=system, drivers=drivers, **settings)).packages


def test_where_no_kernel_is_installed_they_are_those_of_the_usual_one() -> None:
    """In a container the kernel that runs is its host's, of which the distribution has no packages."""
    there = driver(gpu_worker(ADA, system="debian13", drivers=Drivers(kernel="6.18.44-fc-v595")))
    assert "linux-headers-amd64" in there.packages


def test_an_explicit_flavour_replaces_the_other_one() -> None:
    there, _ = planned(gpu_worker(ADA, system="ubuntu24.04", drivers=loaded("580.95.05", "open"), driver_flavour="proprietary"))
    assert there.steps[0].endswith("because driver_flavour = 'proprietary' is wanted")


# What cannot be.

GP102 = "0000:01:00.0 NVIDIA Corporation GP102 [GeForce GTX 1080 Ti]"
GB206 = "0000:05:00.0 NVIDIA Corporation GB206 [GeForce RTX 5060 Ti]"


@pytest.mark.parametrize(
    ("worker", "refusal"),
    [
        (
            gpu_worker(PASCAL, BLACKWELL),
            f"w1: {GP102} and {GB206} cannot share one kernel: Pascal needs the proprietary module, of branch 580 or older,"
            " and Blackwell the open one: pass one of them through to a virtual machine (`passthrough`), or put it into another"
            " host.",
        ),
        (
            gpu_worker(BLACKWELL, system="debian13", driver_source="distribution"),
            f"w1: {GB206} needs NVIDIA's driver of branch 570 or newer, and for Debian 13 there is the distribution's packages"
            " 550, NVIDIA's repository 595: leave `driver_source` out, or install one yourself, which then stays, or use another"
            " release of the distribution.",
        ),
        (
            gpu_worker(PASCAL, system="ubuntu25.10"),
            f"w1: {GP102} needs NVIDIA's driver of branch 580 or older, and for ubuntu25.10 there is nothing that the catalog"
            " knows: install one yourself, which then stays, or use another release of the distribution.",
        ),
        (
            gpu_worker(PASCAL, system="ubuntu26.04", driver=595),
            f"w1: driver = 595 cannot be: branch 595 has dropped {GP102}, whose last one is 580: correct `driver`, or leave it"
            " out.",
        ),
        (
            gpu_worker(ADA, system="debian13", driver=580),
            "w1: driver = 580 is not to be had for Debian 13 (there are: the distribution's packages 550, NVIDIA's repository"
            " 595): choose one, or leave it out.",
        ),
        (
            gpu_worker(PASCAL, driver_flavour="open"),
            f"w1: driver_flavour = 'open' cannot be: the open module cannot drive {GP102}: leave it out.",
        ),
        (
            gpu_worker(BLACKWELL, driver_flavour="proprietary"),
            f"w1: driver_flavour = 'proprietary' cannot be: {GB206} needs the open module: leave it out.",
        ),
        (
            gpu_worker(PASCAL, system="debian13", drivers=Drivers(secure_boot=True)),
            "w1: Secure Boot is on and would refuse the module of NVIDIA driver 550, which DKMS signs with a key of this host"
            " (/var/lib/dkms/mok.pub) that is not enrolled: install dkms and mokutil, make the key if it is not there (`openssl"
            " req -new -x509 -nodes -days 36500 -subj '/CN=DKMS' -newkey rsa:2048 -keyout /var/lib/dkms/mok.key -outform DER"
            " -out /var/lib/dkms/mok.pub`), run `mokutil --import /var/lib/dkms/mok.pub`, reboot and confirm at the console,"
            " or turn Secure Boot off in the firmware.",
        ),
    ],
)
def test_a_refusal_names_host_thing_reason_and_way_out(worker: Host, refusal: str) -> None:
    plan = plan_of([worker, head()])
    assert plan.refusals == (refusal,)
    assert list(plan.hosts) == ["head"]
    assert list(plan.machines) == ["w1", "head"]
    assert plan.machines["w1"].driver is None


def test_the_way_out_of_two_cards_in_one_kernel_works() -> None:
    assert refusals_of(gpu_worker(PASCAL, BLACKWELL, passthrough=["01:00.0"])) == []


@pytest.mark.parametrize(
    "drivers",
    [
        Drivers(secure_boot=False),
        Drivers(secure_boot=None),
        Drivers(secure_boot=True, own_key_enrolled=True),
        loaded("550.163.01", "proprietary", secure_boot=True),
    ],
)
def test_secure_boot_stops_only_what_it_would_stop(drivers: Drivers) -> None:
    assert refusals_of(gpu_worker(PASCAL, system="debian13", drivers=drivers)) == []


@pytest.mark.parametrize("driver", ["auto", "unmanaged"])
@pytest.mark.parametrize(
    ("package", "rejected"),
    [("nvidia-kernel-dkms", True), ("nvidia-dkms-580", True), ("nvidia-headless-no-dkms-580-server", False)],
)
def test_secure_boot_stops_a_driver_that_no_reboot_would_load(driver: str, package: str, rejected: bool) -> None:
    nvidia = Nvidia(on_disk="550.163.01", on_disk_flavour="proprietary", packages={package: "1"})
    refusals = refusals_of(gpu_worker(PASCAL, drivers=Drivers(secure_boot=True, nvidia=nvidia), driver=driver))
    assert ["would refuse the module of NVIDIA driver 550.163.01" in refusal for refusal in refusals] == [True] * rejected


def test_secure_boot_names_the_driver_that_would_be_installed() -> None:
    (refusal,) = refusals_of(gpu_worker(PASCAL, system="debian12", drivers=Drivers(secure_boot=True)))
    assert "the module of NVIDIA driver 580" in refusal


def test_secure_boot_prefers_a_signed_module() -> None:
    there = driver(gpu_worker(ADA, system="ubuntu24.04", drivers=Drivers(secure_boot=True)))
    assert there.source == "distribution"
    (refusal,) = refusals_of(gpu_worker(ADA, system="ubuntu24.04", drivers=Drivers(secure_boot=True), driver_source="nvidia"))
    assert "/var/lib/shim-signed/mok/MOK.der" in refusal


# What is not maintained any more.


@pytest.mark.parametrize(
    ("worker", "warning"),
    [
        (
            gpu_worker(ADA, system="ubuntu24.04", drivers=loaded("610.43.02", "open")),
            "w1: NVIDIA driver 610.43.02: branch 610 is past its end of life (2026-08-31):"
            " set `driver = 580` to move to a branch that is maintained.",
        ),
        (
            gpu_worker(PASCAL, system="debian12", drivers=loaded("535.261.03", "proprietary")),
            "w1: NVIDIA driver 535.261.03: branch 535 is past its end of life (2026-06-30):"
            " set `driver = 580` to move to a branch that is maintained.",
        ),
        (
            gpu_worker(PASCAL, system="debian13"),
            "w1: NVIDIA driver 550.163.01: NVIDIA does not maintain the branch 550 that the distribution's packages have:"
            " no source has a better one for it.",
        ),
    ],
)
def test_a_driver_that_nobody_maintains_is_warned_about(worker: Host, warning: str) -> None:
    assert planned(worker)[1].warnings == (warning,)


@pytest.mark.parametrize(("today", "warned"), [(date(2026, 8, 31), False), (date(2026, 9, 1), True)])
def test_the_end_of_life_depends_on_the_day(today: date, warned: bool) -> None:
    _, plan = planned(gpu_worker(ADA, drivers=loaded("610.43.02", "open")), today)
    assert bool(plan.warnings) == warned


def test_a_long_term_branch_is_one_as_long_as_it_lives() -> None:
    """Debian 12's own 535 is one too at first, and 580 the newer one; where none is left, the distribution's own has to do."""
    worker = gpu_worker(PASCAL, system="debian12")
    versions = {}
    for today in (date(2026, 1, 1), date(2028, 6, 30), date(2028, 7, 1)):
        there = make_plan([worker, head()], today, load()).machines["w1"].driver
        assert there is not None
        versions[today.isoformat()] = there.branch
    assert versions == {"2026-01-01": 580, "2028-06-30": 580, "2028-07-01": 535}


def test_nothing_is_said_of_a_driver_that_is_not_used() -> None:
    assert planned(gpu_worker(PASCAL, backend="cpu", drivers=loaded("535.261.03", "proprietary")))[1].warnings == ()


def test_versions_are_compared_by_number() -> None:
    assert numbers("595.9") < numbers("595.58.03") < numbers("610.43.02")
    assert gpus(PASCAL)[0].generation == "pascal"
