"""No part of another branch is installed, whatever asks for it: what apt itself makes of our preferences."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roles.cluster.driver import Driver
from roles.nvidia.texts import PINS, other_branches, pins
from tests.conftest import run
from tests.unit.nvidia.archive import Archive, Package, archive, nvidia

FROM_NVIDIA = Driver("580.95.05", 580, "proprietary", "nvidia", ("nvidia-driver-pinning-580", "nvidia-driver-cuda"))
FROM_UBUNTU = Driver("580.173.02", 580, "open", "distribution", ("nvidia-headless-no-dkms-580-server-open",))
FROM_DEBIAN = Driver("550.163.01", 550, "open", "distribution", ("nvidia-open-kernel-dkms",))

NAME = Path(PINS).name
CUDA_REPOSITORY_PIN_600 = """\
Package: nsight-compute
Pin: origin *ubuntu.com*
Pin-Priority: -1

Package: nvidia-modprobe
Pin: release l=NVIDIA CUDA
Pin-Priority: 600

Package: *
Pin: release l=NVIDIA CUDA
Pin-Priority: 600
"""
"""What NVIDIA's own instructions put into /etc/apt/preferences.d; source: cuda-ubuntu2404.pin."""


@pytest.fixture
def two_branches(tmp_path: Path) -> Archive:
    """NVIDIA's repository with the wanted branch and the next one."""
    there = archive(tmp_path)
    there.source("nvidia", "NVIDIA", "NVIDIA CUDA", [*nvidia(580), *nvidia(590)])
    there.update()
    return there


def installed(simulation: list[str]) -> dict[str, str]:
    """Package → version, of what a simulation installs."""
    words = [line.split() for line in simulation if line.startswith("Inst ")]
    return {word[1]: next(part.strip("(") for part in word if part.startswith("(")) for word in words}


def test_at_least_does_not_bring_the_next_branch(two_branches: Archive) -> None:
    """Field report B2: cuda-drivers-580 pulled in 590."""
    two_branches.preferences(NAME, pins(FROM_NVIDIA))
    found = installed(two_branches.simulation("install", "nvidia-driver-cuda", "nvidia-driver-pinning-580"))
    assert len(found) == 6
    assert {version[:3] for version in found.values()} == {"580"}


def test_without_pins_it_does(two_branches: Archive) -> None:
    found = installed(two_branches.simulation("install", "nvidia-driver-cuda=580.95.05-1"))
    assert found["nvidia-kernel-dkms"] == "590.95.05-1"


def test_no_upgrade_leaves_the_branch_and_point_updates_are_taken(two_branches: Archive, tmp_path: Path) -> None:
    two_branches.install(*nvidia(580, "82.07"))
    assert set(installed(two_branches.simulation("dist-upgrade")).values()) >= {"590.95.05-1"}
    two_branches.preferences(NAME, pins(FROM_NVIDIA))
    found = installed(two_branches.simulation("dist-upgrade"))
    assert set(found.values()) == {"580.95.05-1"}


def test_nothing_is_downgraded(two_branches: Archive) -> None:
    two_branches.install(*nvidia(580, "178.04"))
    two_branches.preferences(NAME, pins(FROM_NVIDIA))
    assert installed(two_branches.simulation("dist-upgrade")) == {}
    two_branches.install(*nvidia(590, "95.05"))
    assert installed(two_branches.simulation("dist-upgrade")) == {}


def test_a_preferred_repository_with_the_next_branch_is_no_silent_upgrade(tmp_path: Path) -> None:
    """Field report B8: 590 from NVIDIA at 600, 580 from Ubuntu at 500."""
    there = archive(tmp_path)
    there.source("ubuntu", "Ubuntu", "Ubuntu", [Package("libnvidia-compute", "580.173.02-0ubuntu0.24.04.1")])
    there.source("nvidia", "NVIDIA", "NVIDIA CUDA", [Package("libnvidia-compute", "590.48.01-1ubuntu1"), *nvidia(590)])
    there.preferences("cuda-repository-pin-600", CUDA_REPOSITORY_PIN_600)
    there.update()
    assert there.candidate("libnvidia-compute") == "590.48.01-1ubuntu1"
    there.preferences(NAME, pins(FROM_UBUNTU))
    assert there.candidate("libnvidia-compute") == "580.173.02-0ubuntu0.24.04.1"
    assert there.candidate("nvidia-modprobe") == ""


OTHERS = {
    "nvidia-installer-cleanup": "20240109+1",
    "nvidia-kernel-common": "20240109+1",
    "nvidia-support": "20240109+1",
    "glx-alternative-nvidia": "1.2.2",
    "libnvidia-egl-gbm1": "1.1.2.1-1",
    "libnvidia-egl-wayland1": "1:1.1.18-1",
    "libnvidia-ml-dev": "12.4.127~12.4.1-2",
    "nvidia-vaapi-driver": "0.0.13-1",
    "nvidia-cuda-toolkit": "12.4.131~12.4.1-2",
    "nvidia-container-toolkit": "1.17.8-1",
    "libnvidia-container1": "1.17.8-1",
    "nvidia-openjdk-8-jre": "9.+8u452-ga-1~12.4.1-2",
    "linux-modules-nvidia-580-server-open-generic": "6.8.0-88.89",
    "nvidia-modprobe": "570.133.07-1",
    "nvidia-persistenced": "550.163.01-1",
    "libxnvctrl0": "535.171.04-1+b2",
}
"""Called like parts of the driver, and none, or none of a branch; versions of Debian 13 (apt-cache, 2026-11-30) and others."""
PARTS = (
    "firmware-nvidia-gsp",
    "libcuda1",
    "libnvcuvid1",
    "libegl-nvidia0",
    "nvidia-smi",
    "xserver-xorg-video-nvidia",
    "cuda-drivers",
)


def test_what_is_only_called_like_the_driver_is_left_alone(tmp_path: Path) -> None:
    there = archive(tmp_path)
    others = [Package(name, version) for name, version in OTHERS.items()]
    there.source("debian", "Debian", "Debian", [*others, *(Package(name, "535.261.03-1") for name in PARTS)])
    there.preferences(NAME, pins(FROM_DEBIAN))
    there.update()
    assert {name: there.candidate(name) for name in OTHERS} == OTHERS
    assert [name for name in PARTS if there.candidate(name)] == []


@given(st.integers(100, 999), st.integers(100, 999))
def test_the_expression_means_every_branch_but_one(wanted: int, version: int) -> None:
    for epoch in ("", "1:"):
        assert bool(re.search(other_branches(wanted), f"{epoch}{version}.95.05-1")) == (version != wanted)


def test_unattended_upgrades_leave_the_driver_alone() -> None:
    """As unattended-upgrades does it: re.match of each pattern with the name of the package."""
    text = (Path(__file__).parents[3] / "templates/nvidia/unattended.conf").read_text()
    patterns = re.findall(r'^ +"(.*)";$', text, re.MULTILINE)

    def held(name: str) -> bool:
        return any(re.match(pattern, name) for pattern in patterns)

    assert all(map(held, [*PARTS, "nvidia-utils-550", "libnvidia-compute-580", "nvidia-kernel-dkms", "libcudadebugger1"]))
    # A new kernel without its modules would have no driver after the next boot.
    assert not any(
        map(held, ["linux-modules-nvidia-580-server-generic", "linux-image-generic", "libcudart12", "cuda-toolkit-12-9"])
    )


def test_apt_reads_the_file_for_unattended_upgrades(tmp_path: Path) -> None:
    file = Path(__file__).parents[3] / "templates/nvidia/unattended.conf"
    ended = run("apt-config", "dump", "Unattended-Upgrade::Package-Blacklist", APT_CONFIG=str(file))
    assert 'Unattended-Upgrade::Package-Blacklist:: "(?!linux-).*nvidia";' in ended.output, ended.text
