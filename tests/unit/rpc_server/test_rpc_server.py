"""The worker's settings and its unit."""

import os
import subprocess
import time
from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from roles.base.machine import Identity
from roles.base.settings import HostData, read_settings
from roles.cluster.options import Profile
from roles.cluster.plan import HostPlan
from roles.cluster.state import mark_of
from roles.llama_cpp.container import Program
from roles.llama_cpp.flags import arguments
from roles.rpc_server.cache import FOLDER, rule
from roles.rpc_server.settings import Settings
from roles.rpc_server.unit import options, render, unit
from tests.unit.cluster.examples import CPU

GOLDEN = Path(__file__).parent / "golden"
COMMIT = "0c1e57098bba43ac29e6e3b677cdceebdd22334f"
PLAN = HostPlan(
    name="w1",
    address=IPv4Address("198.18.77.11"),
    worker=True,
    head=False,
    rpc_port=50052,
    http_port=8080,
    commit=COMMIT,
    compute=CPU,
    profile=Profile("debian13", "v3", "cpu", ("rpc-server",), {}),
    release=f"{COMMIT[:12]}-debian13-v3-cpu-worker-1f0c2a",
    builder="w1",
    clients=(IPv4Address("198.18.77.10"),),
)


IMAGE = "sha256:" + "ab" * 32
CONTAINER = Program("bin/ggml-rpc-server", IMAGE, Identity(995, 994, (44, 109)))
IN_CONTAINER = replace(
    PLAN,
    runtime="docker",
    devices=("nvidia.com/gpu=all",),
    compute=replace(CPU, backend="cuda", environment={"GGML_CUDA_DISABLE_GRAPHS": "1", "ODD": "of the plan"}),
)


def settings(**values: Any) -> Settings:
    return Settings(**values)


def line(text: str, key: str) -> str:
    return next(line for line in text.splitlines() if line.startswith(f"{key}="))


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("default.service", {}),
        (
            "full.service",
            {
                "listen_on_every_network": True,
                "threads": 4,
                "devices": ["CUDA0", "CPU"],
                "cache": False,
                "environment": {"GGML_CUDA_DISABLE_GRAPHS": "1", "ODD": 'a "b" 100% $c \\d'},
                "extra_arguments": ["--odd", 'a "b" 100% $c \\d'],
            },
        ),
    ],
)
def test_the_unit_is_what_it_was(name: str, values: dict[str, Any]) -> None:
    text = render(PLAN, settings(**values), Program("bin/ggml-rpc-server"))
    if os.environ.get("UPDATE_GOLDEN"):
        (GOLDEN / name).write_text(text)
    assert text == (GOLDEN / name).read_text()


def test_the_unit_of_a_container_is_what_it_was() -> None:
    text = render(IN_CONTAINER, settings(environment={"ODD": 'a "b" 100% $c \\d'}), CONTAINER)
    if os.environ.get("UPDATE_GOLDEN"):
        (GOLDEN / "container.service").write_text(text)
    assert text == (GOLDEN / "container.service").read_text()


@pytest.mark.parametrize("program", [Program("bin/ggml-rpc-server"), CONTAINER], ids=["native", "container"])
def test_what_the_inventory_says_of_a_variable_wins(program: Program) -> None:
    given = settings(environment={"ODD": "of the inventory"})
    text = render(IN_CONTAINER, given, program)
    assert text.count("ODD=") == 1 and 'Environment="ODD=of the inventory"' in text
    assert "Environment=GGML_CUDA_DISABLE_GRAPHS=1\n" in text


def test_another_image_is_another_unit() -> None:
    other = replace(CONTAINER, image="sha256:" + "cd" * 32)
    marks = {mark_of(render(IN_CONTAINER, settings(), program)) for program in (CONTAINER, other)}
    assert len(marks) == 2 and all(marks)


def test_what_must_compute_is_the_backend_of_the_plan() -> None:
    assert unit(PLAN, settings(), Program("bin/rpc-server")).backend == "cpu"
    assert unit(IN_CONTAINER, settings(), CONTAINER).backend == "cuda"


def test_it_must_serve_the_gpus_of_the_plan_unless_the_inventory_names_them() -> None:
    plan = replace(PLAN, gpus=2)
    assert unit(plan, settings(), Program("bin/ggml-rpc-server")).gpus == 2
    assert unit(plan, settings(devices=["CUDA0", "CPU"]), Program("bin/ggml-rpc-server")).gpus == 0
    chosen = settings(environment={"HIP_VISIBLE_DEVICES": "0"})
    assert unit(plan, chosen, Program("bin/ggml-rpc-server")).gpus == 0


@pytest.mark.parametrize(
    ("values", "devices"),
    [
        ({}, ["--device", "CUDA0,CUDA1"]),
        ({"environment": {"GGML_CUDA_DISABLE_GRAPHS": "1"}}, ["--device", "CUDA0,CUDA1"]),
        ({"devices": ["CUDA1"]}, ["--device", "CUDA1"]),
        # Then CUDA0 is another card, or a part of one.
        ({"environment": {"CUDA_VISIBLE_DEVICES": "1"}}, []),
        ({"environment": {"GGML_CUDA_DEVICES": "4"}}, []),
    ],
)
def test_it_names_the_devices_of_the_plan_where_they_are_certain(values: dict[str, Any], devices: list[str]) -> None:
    plan = replace(PLAN, gpus=2, names=("CUDA0", "CUDA1"))
    words = arguments(options(plan, settings(**values)))
    assert words == [*arguments(options(PLAN, settings())), *devices]


def test_the_mark_tells_one_release_from_another() -> None:
    other = HostPlan(**{**vars(PLAN), "release": "e3a74b299085-debian13-v3-cpu-worker-1f0c2a"})
    marks = {mark_of(render(plan, settings(), Program("bin/rpc-server"))) for plan in (PLAN, other)}
    assert len(marks) == 2 and all(marks)


def test_the_program_is_the_one_of_the_build() -> None:
    text = render(PLAN, settings(), Program("bin/rpc-server"))
    words = line(text, "ExecStart").split()
    assert words[:4] == ["ExecStart=/usr/bin/stdbuf", "-oL", "/opt/llama.cpp/current/bin/rpc-server", "--host"]


def test_where_it_listens() -> None:
    def host(**values: Any) -> str:
        return arguments(options(PLAN, settings(**values)))[1]

    assert host() == "198.18.77.11"
    assert host(host="10.0.0.5") == "10.0.0.5"
    assert host(listen_on_every_network=True) == "0.0.0.0"
    assert host(listen_on_every_network=True, host="0.0.0.0") == "0.0.0.0"


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"host": "0.0.0.0"}, "set rpc_server_listen_on_every_network"),
        ({"host": "127.0.0.1"}, "no head on another host"),
        ({"host": "127.0.0.1", "listen_on_every_network": True}, "no head on another host"),
        ({"host": "::1"}, "IPv4"),
        ({"host": "w1"}, "IPv4"),
        ({"threads": 0}, "greater than or equal to 1"),
        ({"devices": []}, "at least 1"),
        ({"cache_days": 0}, "greater than or equal to 1"),
        ({"devices": ["CUDA0,CUDA1"]}, "pattern"),
        ({"devices": "CUDA0"}, "list"),
        ({"environment": {"HOME": "/root"}}, "set by the unit"),
        ({"environment": {"A B": "1"}}, "name of a variable"),
        ({"environment": {"A": "1\n2"}}, "control character"),
        ({"extra_arguments": "--odd"}, "list"),
        ({"extra_arguments": ["-p", "1"]}, "setting rpc_port"),
        ({"extra_arguments": ["-H", "0.0.0.0"]}, "setting rpc_server_host"),
        ({"extra_arguments": ["a\nb"]}, "control character"),
        ({"colour": "red"}, "not permitted"),
    ],
)
def test_what_is_not_valid(values: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        settings(**values)


def test_the_sentence_names_the_key() -> None:
    data = HostData("w1", frozenset({"workers"}), {"rpc_server_host": "0.0.0.0"})
    _, problems = read_settings([Settings], [data])
    assert len(problems) == 1
    assert problems[0].startswith("w1: rpc_server_host = ") and "rpc_server_listen_on_every_network" in problems[0]


@pytest.mark.parametrize("golden", sorted(GOLDEN.glob("*.service")), ids=lambda path: path.name)
def test_systemd_takes_the_unit(golden: Path, tmp_path: Path) -> None:
    verified(golden.read_text(), tmp_path / "rpc-server.service")


def verified(text: str, path: Path) -> None:
    """Let systemd read a unit; that its program is not there is no fault of the text."""
    path.write_text(text)
    found = subprocess.run(["systemd-analyze", "verify", "--man=no", path], capture_output=True, text=True, check=False)
    problems = [line for line in found.stderr.splitlines() if path.name in line and "is not executable" not in line]
    assert not problems


def test_the_age_of_cached_tensors() -> None:
    assert rule(settings()).splitlines()[-1] == "e /var/cache/llama.cpp/rpc - - - 30d"
    assert rule(settings(cache_days=7)).endswith(" 7d\n")


def test_systemd_deletes_what_is_old_and_nothing_else(tmp_path: Path) -> None:
    """With seconds in place of days, since no file can be made older than it is."""
    old, new, beside = tmp_path / "rpc" / "old", tmp_path / "rpc" / "new", tmp_path / "beside"
    old.parent.mkdir()
    old.touch()
    beside.touch()
    time.sleep(3.5)
    new.touch()
    text = rule(settings(cache_days=3)).replace(FOLDER, str(old.parent)).replace("3d", "3s")
    (tmp_path / "gpuquilt.conf").write_text(text)
    found = subprocess.run(
        ["systemd-tmpfiles", "--clean", tmp_path / "gpuquilt.conf"], capture_output=True, text=True, check=True
    )
    assert found.stderr == ""
    assert (old.exists(), new.exists(), beside.exists()) == (False, True, True)
