"""What Docker and the kernel said of real containers is read rightly, and each fault is named."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.verify import containers, reading
from tests.verify.containers import Container, Image

ANSWERS = Path(__file__).parent / "answers"

OURS = "sha256:aafb36689e37c30f0bf6d0cc872d226eaa00d8c98de31ad970ed0f1fd397fb25"
OTHERS = "sha256:57e474f8d6c5d6b0cad75eb309e5c71bdfe28aa7034ad1fa0e84e039ea8a169d"
CONFINED = (ANSWERS / "process-confined.txt").read_text()


def test_containers_are_read() -> None:
    """One of ours, one that somebody made of our image, and three of somebody's own; with devices by their paths and by CDI."""
    found = {container.name: container for container in containers.containers((ANSWERS / "containers.json").read_text())}
    all_gpus = found.pop("gpus")
    assert found == {
        "gpuquilt-rpc-server": Container("gpuquilt-rpc-server", OURS, True, ("/dev/dri", "/dev/kfd")),
        "by-tag": Container("by-tag", OURS, True),
        "cdi": Container("cdi", OTHERS, False, ("nvidia.com/gpu=all",)),
        "loose2": Container("loose2", OTHERS, False),
    }
    assert (all_gpus.ours, ['"Count": -1' in device for device in all_gpus.devices]) == (False, [True])


def test_a_container_is_ours_by_its_name_whatever_it_runs() -> None:
    text = (ANSWERS / "containers.json").read_text().replace('"/loose2"', '"/gpuquilt-llama-server"')
    assert {container.name for container in containers.containers(text) if container.ours} == {
        "gpuquilt-rpc-server",
        "gpuquilt-llama-server",
        "by-tag",
    }


def test_where_there_is_none_none_is_read() -> None:
    assert containers.containers("") == []


def test_an_image_is_read() -> None:
    image = containers.image((ANSWERS / "image.json").read_text())
    assert image.id == OURS
    assert image.labels[containers.REVISION] == "0c1e57098bba43ac29e6e3b677cdceebdd22334f"


@pytest.mark.parametrize(
    ("text", "image"),
    [("[]\n", Image()), ("", Image()), ('[{"Id": "sha256:0", "Config": {"Labels": null}}]', Image("sha256:0"))],
    ids=["not there", "no Docker", "without labels"],
)
def test_an_image_that_says_nothing(text: str, image: Image) -> None:
    assert containers.image(text) == image


def test_a_confined_container_has_no_gap() -> None:
    assert containers.gaps(CONFINED) == []


def test_a_container_as_docker_makes_it_has_every_gap() -> None:
    assert containers.gaps((ANSWERS / "process-loose.txt").read_text()) == [
        "runs as root",
        "has capabilities (CapPrm 00000000a80425fb, CapEff 00000000a80425fb, CapBnd 00000000a80425fb)",
        "may gain privileges",
        "can write to its root file system",
        "has a network of its own",
    ]


@pytest.mark.parametrize(
    ("right", "wrong", "gap"),
    [
        ("Uid=\t995\t995", "Uid=\t995\t0", "runs as root"),
        ("CapBnd=\t0000000000000000", "CapBnd=\t0000000000001000", "has capabilities (CapBnd 0000000000001000)"),
        ("NoNewPrivs=\t1", "NoNewPrivs=\t0", "may gain privileges"),
        ("Root=ro", "Root=rw", "can write to its root file system"),
        ("HostNetwork=", "", "has a network of its own"),
    ],
)
def test_each_gap_is_seen_alone(right: str, wrong: str, gap: str) -> None:
    assert CONFINED.count(right) == 1
    assert containers.gaps(CONFINED.replace(right, wrong)) == [gap]


@contextmanager
def process(*command: str | Path) -> Iterator[int]:
    with subprocess.Popen(command) as started:
        try:
            yield started.pid
        finally:
            started.kill()


def look(folder: Path, pid: int, docker: str) -> reading.Service:
    """What the question about a unit says where systemd and Docker are played, and the processes are real."""
    programs = {
        "systemctl": f"case $* in *=MainPID*) echo {pid} ;; *) printf 'ActiveState=active\\nSubState=running\\n' ;; esac",
        "docker": docker,
    }
    for name, script in programs.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    command = ["sh", "-c", reading.service_command("rpc-server.service")]
    return reading.service(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)


@pytest.mark.parametrize("program", ["docker", "docker (deleted)"])
def test_of_a_unit_that_runs_docker_the_process_is_the_containers(program: str, tmp_path: Path) -> None:
    """Also when Docker was upgraded while it runs: its program is then one that is not there any more."""
    (tmp_path / "bin").mkdir()
    client = tmp_path / "bin" / "docker"
    shutil.copy(shutil.which("sleep") or "", client)
    with process(client, "60") as main, process("sleep", "60") as inside:
        if program != "docker":
            client.unlink()
        asked = f'[ "$*" = "inspect --format {{{{.State.Pid}}}} gpuquilt-rpc-server" ] && echo {inside}'
        seen = look(tmp_path, main, asked)
        assert (seen.pid, seen.running, seen.arguments) == (inside, True, ("sleep", "60"))
        # Its client is there, and the container is gone.
        seen = look(tmp_path, main, "exit 1")
        assert (seen.state, seen.pid, seen.running) == ("active/running", 0, False)


def test_of_another_unit_it_is_the_one_that_systemd_started(tmp_path: Path) -> None:
    with process("sleep", "60") as main:
        seen = look(tmp_path, main, "echo 1")
    assert (seen.pid, seen.contained) == (main, False)


def test_a_process_that_sees_no_other_of_the_host_is_in_a_container(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("a process namespace needs root: run the tests as root")
    with process("unshare", "--pid", "--fork", "--kill-child", "sleep", "60") as outside:
        children = Path(f"/proc/{outside}/task/{outside}/children")
        while not (inside := children.read_text().split()):
            assert os.waitpid(outside, os.WNOHANG)[0] == 0, "unshare has ended"
        assert look(tmp_path, int(inside[0]), "exit 1").contained
        assert not look(tmp_path, outside, "exit 1").contained
