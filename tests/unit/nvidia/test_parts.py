"""What speaks against an installation, told by simulations as apt prints them."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roles.base import apt
from roles.cluster.driver import Driver
from roles.gpus.catalog import load
from roles.nvidia.parts import NAMES, branch_of, flavour_of, leftovers, objections, origin
from tests.unit.cluster.examples import PASCAL, gpus

GTX_1070_TI = "01:00.0 VGA compatible controller [0300]: NVIDIA Corporation GP104 [GeForce GTX 1070 Ti] [10de:1b82] (rev a1)"

NVIDIA_580 = Driver("580.178.04", 580, "proprietary", "nvidia", ("nvidia-driver-pinning-580", "nvidia-kernel-dkms"))
DEBIAN_535 = Driver("535.261.03", 535, "proprietary", "distribution", ("nvidia-kernel-dkms",))
DEBIAN_550_OPEN = Driver("550.163.01", 550, "open", "distribution", ("nvidia-open-kernel-dkms",))
UBUNTU_580_OPEN = Driver("580.173.02", 580, "open", "distribution", ("nvidia-headless-no-dkms-580-server-open",))

DEBIAN_12 = """\
NOTE: This is only a simulation!
Inst dkms (3.0.10-8+deb12u1 Debian:12.15/oldstable [all])
Inst nvidia-installer-cleanup (20220217+3~deb12u1 Debian:12.15/oldstable [amd64])
Conf nvidia-installer-cleanup (20220217+3~deb12u1 Debian:12.15/oldstable [amd64])
Inst glx-alternative-nvidia (1.2.2 Debian:12.15/oldstable [amd64])
Inst nvidia-legacy-check (535.261.03-1 Debian:12.15/oldstable [amd64])
Inst nvidia-support (20220217+3~deb12u1 Debian:12.15/oldstable [amd64])
Inst nvidia-alternative (535.261.03-1 Debian:12.15/oldstable [amd64])
Inst libcuda1 (535.261.03-1 Debian:12.15/oldstable [amd64])
Inst firmware-nvidia-gsp (535.261.03-1 Debian:12.15/oldstable [amd64])
Inst nvidia-kernel-common (20220217+3~deb12u1 Debian:12.15/oldstable [amd64])
Inst nvidia-modprobe (535.161.07-1~deb12u1 Debian:12.15/oldstable [amd64])
Inst nvidia-kernel-support (535.261.03-1 Debian:12.15/oldstable [amd64])
Inst nvidia-kernel-dkms (535.261.03-1 Debian:12.15/oldstable [amd64])
Inst linux-headers-amd64 (6.1.176-1 Debian:12.15/oldstable [amd64])
"""
DEBIAN_13_OPEN = """\
Inst nvidia-legacy-check (550.163.01-2 Debian:13.8/stable [amd64])
Inst libcuda1 (550.163.01-2 Debian:13.8/stable [amd64])
Inst firmware-nvidia-gsp (550.163.01-2 Debian:13.8/stable [amd64])
Inst nvidia-kernel-common (20240109+1 Debian:13.8/stable [amd64])
Inst nvidia-modprobe (570.133.07-1 Debian:13.8/stable [amd64])
Inst nvidia-open-kernel-support (550.163.01-2 Debian:13.8/stable [amd64])
Inst nvidia-open-kernel-dkms (550.163.01-2 Debian:13.8/stable [amd64])
"""


def said(simulation: str, driver: Driver, card: str = PASCAL) -> list[str]:
    return objections(apt.changes(simulation.splitlines()), driver, gpus(card), load())


@pytest.mark.parametrize(("simulation", "driver"), [(DEBIAN_12, DEBIAN_535), (DEBIAN_13_OPEN, DEBIAN_550_OPEN)])
def test_nothing_speaks_against_the_wanted_driver(simulation: str, driver: Driver) -> None:
    assert said(simulation, driver) == []


def test_the_next_branch_is_stopped_and_the_card_named_that_it_has_dropped() -> None:
    """Field report B2."""
    simulation = "Inst nvidia-kernel-dkms (590.44.01-1 NVIDIA:1.0 [amd64])\nInst dkms (3.0.10-8 Debian:12/oldstable [all])"
    assert said(simulation, NVIDIA_580, GTX_1070_TI) == [
        "nvidia-kernel-dkms 590.44.01-1 (NVIDIA:1.0) would be installed, which is of branch 590, and 580 is wanted; branch 590"
        " has dropped 0000:01:00.0 NVIDIA Corporation GP104 [GeForce GTX 1070 Ti], whose last one is 580:"
        " look at `apt-cache policy nvidia-kernel-dkms` and"
        " `apt-mark showhold` there for what asks for it, take that away, and run again."
    ]


@pytest.mark.parametrize(
    ("line", "driver", "why"),
    [
        ("libcuda1 (535.261.03-1 Debian:12/oldstable [amd64])", NVIDIA_580, "which is of branch 535, and 580 is wanted:"),
        ("libcuda1 [580.82-1] (590.44.01-1 NVIDIA:1 [amd64])", NVIDIA_580, "of branch 590, and 580 is wanted; branch 590 has dr"),
        ("nvidia-driver-pinning-590 (1.0-1 NVIDIA:1 [all])", NVIDIA_580, "which is of branch 590, and 580 is wanted;"),
        ("nvidia-modprobe (595.71-1 NVIDIA:1 [amd64])", NVIDIA_580, "which is of branch 595, and 580 is wanted;"),
        ("linux-modules-nvidia-570-server-generic (6.8.0-88.89 Ubuntu:24.04 [amd64])", UBUNTU_580_OPEN, "of branch 570,"),
        ("nvidia-dkms-580 (580.173.02-0ubuntu1 Ubuntu:24.04 [amd64])", UBUNTU_580_OPEN, "the proprietary module, and the open"),
        ("nvidia-kernel-open-dkms (580.178.04-1 NVIDIA:1 [amd64])", NVIDIA_580, "which is the open module, and the proprietary"),
        ("libnvidia-compute-580 (580.178.04-1ubuntu1 NVIDIA:1 [amd64])", UBUNTU_580_OPEN, "NVIDIA's, and the distribution's dri"),
        ("libcuda1 (580.65.06-1 Debian:13/stable [amd64])", NVIDIA_580, "which is the distribution's, and NVIDIA's driver is wa"),
    ],
)
def test_a_part_of_another_driver_is_stopped(line: str, driver: Driver, why: str) -> None:
    (sentence,) = said(f"Inst {line}", driver)
    assert sentence.startswith(line.split(" ", 1)[0] + " ")
    assert why in sentence


def test_a_driver_that_is_unmanaged_and_not_there_is_nobodys() -> None:
    (sentence,) = said("Inst libcuda1 (550.163.01-2 Debian:13.8/stable [amd64])", Driver("", 0, None, "unmanaged"))
    assert "would be installed, and the driver of this host is not to be touched: look at" in sentence


def test_what_is_removed_is_not_for_it_to_judge() -> None:
    assert said("Remv libcuda1 [590.44.01-1]", NVIDIA_580) == []


@pytest.mark.parametrize(
    ("package", "version", "branch", "flavour"),
    [
        ("nvidia-kernel-dkms", "535.261.03-1", 535, "proprietary"),
        ("nvidia-open-kernel-dkms", "550.163.01-2", 550, "open"),
        ("nvidia-kernel-open-dkms", "580.178.04-1", 580, "open"),
        ("nvidia-dkms-580-open", "580.173.02-0ubuntu0.24.04.1", 580, "open"),
        ("nvidia-headless-no-dkms-580-server-open", "580.173.02-0ubuntu0.24.04.1", 580, None),
        ("linux-modules-nvidia-580-server-open-6.8.0-88-generic", "6.8.0-88.89", 580, "open"),
        ("linux-modules-nvidia-580-generic-hwe-24.04", "6.8.0-88.89", 580, "proprietary"),
        ("linux-objects-nvidia-580-server-open-5.15.0-161-generic", "5.15.0-161.171", 580, None),
        # Of all branches, for the 161st build of a kernel.
        ("linux-signatures-nvidia-5.15.0-161-generic", "5.15.0-161.171", None, None),
        # A transitional package of Ubuntu, which brings the branch of its version.
        ("nvidia-driver-570", "580.173.02-0ubuntu0.24.04.1", 580, None),
        ("nvidia-tesla-535-driver", "535.274.02-1~deb13u1", 535, None),
        ("nvidia-legacy-390xx-driver", "390.157-1", 390, None),
        ("cuda-drivers-580", "580.95.05-1", 580, None),
        ("nvidia-driver-pinning-580", "580-1", 580, None),
        ("libcuda1:i386", "580.95.05-1", 580, None),
        ("nvidia-fs-dkms", "2.19.7~12.4.1-2", None, "proprietary"),
        ("nvidia-container-toolkit", "1.17.8-1", None, None),
        ("libnvidia-egl-wayland1", "1:1.1.18-1", None, None),
        ("linux-headers-amd64", "6.1.176-1", None, None),
        ("hfsprogs", "540.1.linux3-5+b1", None, None),
    ],
)
def test_branch_and_flavour(package: str, version: str, branch: int | None, flavour: str | None) -> None:
    assert branch_of(package, version) == branch
    assert flavour_of(package) == flavour


def test_what_is_left_of_another_driver() -> None:
    installed = {
        "nvidia-kernel-dkms": "535.261.03-1",
        "libcuda1": "535.261.03-1",
        "nvidia-modprobe": "535.161.07-1~deb12u1",
        "nvidia-support": "20220217+3~deb12u1",
        "nvidia-container-toolkit": "1.17.8-1",
        "nvidia-driver-pinning-580": "580-1",
    }
    assert leftovers(installed, DEBIAN_535) == ["nvidia-driver-pinning-580"]
    assert leftovers(installed, NVIDIA_580) == ["libcuda1", "nvidia-kernel-dkms", "nvidia-modprobe"]


def test_the_other_module_of_the_same_branch_goes() -> None:
    installed = {"nvidia-kernel-dkms": "550.163.01-2", "nvidia-kernel-support": "550.163.01-2", "libcuda1": "550.163.01-2"}
    assert leftovers(installed, DEBIAN_550_OPEN) == ["nvidia-kernel-dkms", "nvidia-kernel-support"]


@pytest.mark.parametrize("system", load().distributions)
def test_every_offer_of_the_catalog_is_what_it_says(system: str) -> None:
    """Its packages are parts of its branch and flavour, and the source can be told from their names."""
    distribution = load().distributions[system]
    for offer in distribution.drivers:
        for flavour, names in offer.packages.items():
            packages = distribution.packages_for(names, "")
            planned = Driver(offer.version, offer.branch, flavour, offer.origin, packages)
            there = Driver(offer.version, offer.branch, flavour, "loaded", packages)
            assert origin(planned) == origin(there) == offer.origin
            versions = {name: f"{offer.version}-1" for name in packages if not name.startswith("linux-headers")}
            assert leftovers(versions, planned) == []
            assert {branch_of(name, version) for name, version in versions.items()} == {offer.branch}


@given(st.text(max_size=40), st.text(max_size=40))
def test_any_name_and_version_can_be_read(package: str, version: str) -> None:
    branch = branch_of(package, version)
    assert branch is None or 0 <= branch <= 999
    assert flavour_of(package) in (None, "open", "proprietary")


def test_the_names_for_dpkg_and_apt_and_for_us_are_the_same() -> None:
    names = ["libcuda1", "libcuda12", "libnvcuvid1", "xnvidia", "cuda-drivers-580", "cuda-toolkit", "libxnvctrl0", "libnvoptix1"]
    for name in names:
        assert (branch_of(name, "580.95.05-1") is not None) == any(fnmatchcase(name, pattern) for pattern in NAMES), name
