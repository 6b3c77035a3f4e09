"""deploys/prepare.py on hosts that only answer, with GPUs of Intel and AMD."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.conftest import ROOT
from tests.unit.docker.examples import TRIXIE
from tests.unit.fakes import GOOD, MODEL, Run, deploy, fake, inventory

PREPARE = ROOT / "deploys/prepare.py"
ENDED = {"active=$(systemctl is-active": ["0"], "uname -s": ["Linux"], "command -v useradd": ["/usr/sbin/useradd"]}
SOURCES = [
    "file /etc/apt/sources.list",
    "| deb http://deb.example/debian bookworm main",
    "os ID debian",
    "os VERSION_CODENAME bookworm",
]


Prepared = tuple[str, tuple[str, str], str, dict[str, Any]]
"""Of a host its name, system, GPU, and what it answers."""


def prepare(folder: Path, *prepared: Prepared) -> Run:
    """Hosts, each worker and head."""
    hosts = []
    for name, system, gpu, answers in prepared:
        machine = {"os": f"ID {system[0]}", "os VERSION_ID": system[1]}
        hosts.append(fake(name, machine, {**ENDED, **answers}, gpus=[gpu], **GOOD, **MODEL))
    return deploy(inventory(folder, workers=hosts, heads=hosts[:1]), script=PREPARE)


def test_a_host_gets_firmware_vulkan_and_access(tmp_path: Path) -> None:
    packages = {
        "w1": "firmware-amd-graphics mesa-vulkan-drivers libvulkan1 vulkan-tools",
        "w2": "firmware-intel-graphics mesa-vulkan-drivers libvulkan1 vulkan-tools",
        "head": "linux-firmware",
    }

    def answers(name: str) -> dict[str, Any]:
        simulation = f"apt-get --simulate install --no-install-recommends {packages[name]}"
        installed = [f"Inst for-{name} (1 Debian:12/stable [amd64])"]
        return {"/etc/apt/sources.list.d/*.sources": SOURCES, simulation: installed}

    run = prepare(
        tmp_path,
        ("w1", ("debian", "12"), "Navi 48", answers("w1")),
        ("w2", ("debian", "13"), "DG2", answers("w2")),
        ("head", ("ubuntu", "24.04"), "DG2", answers("head")),
        ("lost", ("debian", "12"), "GP102", {}),
    )
    assert run.ended.status == 0, run.ended.text
    for name, words in packages.items():
        assert run.hosts_told(f"apt-get --simulate install --no-install-recommends {words}") == [name], run.ended.text
        # Such a script is longer than what `Run.commands` has of it; it is shown once where it is run.
        assert run.ended.text.count(f" for-{name} install --no-install-recommends {words}\n") == 1
    assert run.ended.text.count("\ninstall_packages graphics ") == len(packages)
    assert sorted(run.hosts_told("Components: non-free-firmware")) == ["w1", "w2"]
    # One with a GPU of NVIDIA gets nothing of it.
    assert sorted(run.hosts_told("usermod --append --groups render,video llama")) == ["head", "w1", "w2"]


def test_where_all_is_there_nothing_is_done(tmp_path: Path) -> None:
    there = ["firmware-amd-graphics", "mesa-vulkan-drivers", "libvulkan1", "vulkan-tools"]
    component = [*SOURCES[:1], f"{SOURCES[1]} non-free-firmware", *SOURCES[2:]]
    answers = {
        "/etc/apt/sources.list.d/*.sources": component,
        " ".join(there): [f"installed {name}" for name in there],
        "id -nG llama": ["llama video render"],
    }
    run = prepare(tmp_path, ("w1", ("debian", "12"), "Navi 48", answers))
    assert run.ended.status == 0, run.ended.text
    assert not run.hosts_told("usermod --append")
    assert "Components: non-free" not in run.ended.text
    assert "\ninstall_packages graphics " not in run.ended.text


DOCKER = {"docker-buildx-plugin": TRIXIE}
"""A host with a Docker of its own."""


def test_a_host_without_a_gpu_that_computes_with_vulkan_gets_mesa(tmp_path: Path) -> None:
    words = "apt-get --simulate install --no-install-recommends mesa-vulkan-drivers libvulkan1 vulkan-tools"
    answers = {**ENDED, words: ["Inst mesa (1 Debian:13/stable [amd64])"]}
    wish = {"backend": "vulkan", "vulkan_software": True}
    hosts = [
        fake("w1", {}, answers, **wish, **GOOD, **MODEL),
        fake("w2", {}, {**ENDED, **DOCKER}, runtime="docker", docker_engine="none", **wish, **GOOD, **MODEL),
        fake("head", {}, ENDED, **GOOD, **MODEL),
    ]
    run = deploy(inventory(tmp_path, workers=hosts[:2], heads=hosts[2:]), script=PREPARE)
    assert run.ended.status == 0, run.ended.text
    assert run.hosts_told(words) == ["w1"]
    assert run.ended.text.count("\ninstall_packages graphics ") == 1
