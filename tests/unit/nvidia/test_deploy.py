"""deploys/prepare.py on a host that only answers: in which order, and what stops it."""

from __future__ import annotations

from pathlib import Path
from posixpath import dirname
from typing import Any

import pytest

from roles.nvidia.parts import INSTALLER
from roles.nvidia.texts import MODPROBE, PINS
from tests.conftest import ROOT
from tests.unit.fakes import GOOD, MODEL, Run, deploy, fake, inventory
from tests.unit.nvidia.test_parts import DEBIAN_12

PREPARE = ROOT / "deploys" / "prepare.py"
PASCAL = "0000:01:00.0 VGA compatible controller [0300]: NVIDIA Corporation GP104 [GeForce GTX 1070 Ti] [10de:1b82] (rev a1)"
DONE = {"active=$(systemctl": ["0"], "uname -s": ["Linux"], "useradd": ["/usr/sbin/useradd"]}
"""What a host answers on which all work ends well."""
SIMULATION = "apt-get --simulate install --no-install-recommends linux-headers"
INSTALLATION, OF_TOOLKIT = ("mkdir -p /var/lib/gpuquilt/work/gpuquilt-install-nvidia" + end for end in ("\n", "-toolkit\n"))
"""How the work begins."""
SOURCES = {
    "for file in /etc/apt/sources.list ": [
        "file /etc/apt/sources.list",
        "| deb http://deb.example/debian bookworm main",
        "os ID debian",
        "os VERSION_CODENAME bookworm",
    ]
}


def prepared(folder: Path, answers: dict[str, Any], **settings: Any) -> Run:
    """A run on one worker of Debian 12 with a card of the Pascal generation."""
    given = {"driver_source": "distribution", "gpus": ["10de:1b82"], "nvidia_toolkit": False, **GOOD, **settings}
    worker = fake("w1", {"os VERSION_ID": "12"}, {**DONE, **answers}, **given)
    return deploy(inventory(folder, workers=[worker], heads=[fake("head", answers=DONE, **GOOD, **MODEL)]), script=PREPARE)


def told(run: Run, words: str) -> int:
    """When the worker was told this first."""
    return next(index for index, (host, command) in enumerate(run.commands) if host == "w1" and words in command)


def test_pins_and_sources_come_before_the_first_package(tmp_path: Path) -> None:
    run = prepared(tmp_path, {SIMULATION: DEBIAN_12.splitlines(), **SOURCES})
    order = [
        f"mkdir -p {dirname(PINS)}",
        f"mkdir -p {dirname(MODPROBE)}",
        "printf %s 'Types: deb",
        SIMULATION,
        INSTALLATION,
        "systemctl enable --quiet gpuquilt-nvidia.service",
    ]
    assert [told(run, words) for words in order] == sorted(told(run, words) for words in order), run.ended.text


def test_nothing_is_installed_where_the_next_branch_would_come(tmp_path: Path) -> None:
    """Field report B2."""
    simulation = ["Inst nvidia-kernel-dkms (590.44.01-1 NVIDIA:1.0 [amd64])"]
    run = prepared(tmp_path, {SIMULATION: simulation}, driver=535)
    assert run.ended.status != 0
    sentence = (
        "nvidia-kernel-dkms 590.44.01-1 (NVIDIA:1.0) would be installed, which is of branch 590, and 535 is wanted; branch 590"
        " has dropped pascal GPU [10de:1b82], whose last one is 580: look at"
    )
    assert sentence in run.ended.text, run.ended.text
    assert run.hosts_told(INSTALLATION) == []


def test_a_driver_from_nvidias_installer_is_in_the_way_before_anything_is_changed(tmp_path: Path) -> None:
    run = prepared(tmp_path, {INSTALLER: ["installer"]}, driver=535)
    assert run.ended.status != 0
    assert "was put there by NVIDIA's own installer, a .run file, and no package manager can exchange it" in run.ended.text
    assert "Starting operation" not in run.ended.text


@pytest.mark.parametrize("settings", [{"driver": "unmanaged", "cuda_toolkit": "12.2"}, {"gpus": []}])
def test_hands_off(tmp_path: Path, settings: dict[str, Any]) -> None:
    run = prepared(tmp_path, {}, **settings)
    assert "NVIDIA driver |" not in run.ended.text
    assert run.hosts_told(PINS) == []


def test_a_toolkit_that_is_not_to_be_had_is_refused_with_the_way_out(tmp_path: Path) -> None:
    run = prepared(tmp_path, {}, nvidia_toolkit=None)
    assert run.ended.status != 0
    sentence = (
        "@fake/w1: its release needs CUDA 12.2, and for Debian 12 there is no package of that toolkit (there are: 12.8, 12.9,"
        ' 13.0, 13.1, 13.2, 13.3): set runtime = "docker" for this host, or `cuda_toolkit` to one of them if its GPUs and driver'
        " can do with that, or install it yourself and set `nvidia_toolkit = False`."
    )
    assert sentence in run.ended.text, run.ended.text


def test_a_toolkit_brings_no_driver_of_its_own(tmp_path: Path) -> None:
    simulation = DEBIAN_12.replace("libcuda1 (535.261.03-1 Debian:12.15/oldstable", "libcuda1 (575.57.08-1 NVIDIA:1.0")
    run = prepared(
        tmp_path,
        {"cuda-toolkit-12-9": simulation.splitlines(), SIMULATION: DEBIAN_12.splitlines()},
        nvidia_toolkit=None,
        cuda_toolkit="12.9",
        cuda_minor_version_compatibility=True,
    )
    assert run.hosts_told(INSTALLATION) == ["w1"]
    assert run.ended.status != 0
    assert "libcuda1 575.57.08-1 (NVIDIA:1.0) would be installed, which is of branch 575, and 535" in run.ended.text
    assert run.hosts_told(OF_TOOLKIT) == []
