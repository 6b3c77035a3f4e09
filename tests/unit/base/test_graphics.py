"""deploys/prepare.py on hosts that only answer, with GPUs of Intel and AMD."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.unit.fakes import GOOD, MODEL, Run, deploy, fake, inventory

PREPARE = ROOT / "deploys/prepare.py"
ENDED = {"active=$(systemctl is-active": ["0"], "uname -s": ["Linux"], "command -v useradd": ["/usr/sbin/useradd"]}
SOURCES = [
    "file /etc/apt/sources.list",
    "| deb http://deb.example/debian bookworm main",
    "os ID debian",
    "os VERSION_CODENAME bookworm",
]


def prepare(folder: Path, system: tuple[str, str], gpu: str, answers: dict[str, Any]) -> Run:
    """One host, worker and head."""
    machine = {"os": f"ID {system[0]}", "os VERSION_ID": system[1]}
    host = fake("w1", machine, {**ENDED, **answers}, gpus=[gpu], **GOOD, **MODEL)
    return deploy(inventory(folder, workers=[host], heads=[host]), script=PREPARE)


@pytest.mark.parametrize(
    ("system", "gpu", "packages"),
    [
        (("debian", "12"), "Navi 48", "firmware-amd-graphics mesa-vulkan-drivers libvulkan1 vulkan-tools"),
        (("debian", "13"), "DG2", "firmware-intel-graphics mesa-vulkan-drivers libvulkan1 vulkan-tools"),
        (("ubuntu", "24.04"), "DG2", "linux-firmware"),
    ],
)
def test_a_host_gets_firmware_vulkan_and_access(tmp_path: Path, system: tuple[str, str], gpu: str, packages: str) -> None:
    simulation = f"apt-get --simulate install --no-install-recommends {packages}"
    answers = {"/etc/apt/sources.list.d/*.sources": SOURCES, simulation: ["Inst libvulkan1 (1 Debian:12/stable [amd64])"]}
    run = prepare(tmp_path, system, gpu, answers)
    assert run.ended.status == 0, run.ended.text
    assert len([command for _, command in run.commands if command.endswith(simulation)]) == 1
    # Such a script is longer than what `Run.commands` has of it.
    assert "\ninstall_packages graphics " in run.ended.text
    assert f"libvulkan1 install --no-install-recommends {packages}\n" in run.ended.text
    assert ("Components: non-free-firmware" in run.ended.text) == (system[0] == "debian")
    assert run.hosts_told("usermod --append --groups render,video llama")


def test_where_all_is_there_nothing_is_done(tmp_path: Path) -> None:
    there = ["firmware-amd-graphics", "mesa-vulkan-drivers", "libvulkan1", "vulkan-tools"]
    component = [*SOURCES[:1], f"{SOURCES[1]} non-free-firmware", *SOURCES[2:]]
    answers = {
        "/etc/apt/sources.list.d/*.sources": component,
        " ".join(there): [f"installed {name}" for name in there],
        "id -nG llama": ["llama video render"],
    }
    run = prepare(tmp_path, ("debian", "12"), "Navi 48", answers)
    assert run.ended.status == 0, run.ended.text
    assert not run.hosts_told("usermod --append")
    assert "Components: non-free" not in run.ended.text
    assert "\ninstall_packages graphics " not in run.ended.text


def test_a_host_without_such_a_gpu_gets_nothing_of_it(tmp_path: Path) -> None:
    run = prepare(tmp_path, ("debian", "12"), "GP102", {})
    assert not run.hosts_told("usermod --append")
    assert "\ninstall_packages graphics " not in run.ended.text
