"""The words of `docker run`."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from roles.base.machine import Identity
from roles.cluster.state import RPC_SERVER
from roles.llama_cpp.container import Program, command_line, program
from tests.unit.llama_cpp.examples import manifest
from tests.unit.rpc_server.test_rpc_server import PLAN

IMAGE = "sha256:" + "ab" * 32
USER = Identity(995, 994)
PROGRAM = Program("bin/ggml-rpc-server", IMAGE, USER)


def words(found: Program = PROGRAM, arguments: Sequence[str] = (), plan: Mapping[str, Any] = {}, **more: Any) -> list[str]:
    return command_line(RPC_SERVER, replace(PLAN, **plan), found, arguments, **more)


def values(option: str, **more: Any) -> list[str]:
    """What an option is given, each time."""
    line = words(**more)
    return [line[number + 1] for number, word in enumerate(line) if word == option]


def test_a_program_of_the_host_starts_by_itself() -> None:
    native = Program("bin/rpc-server")
    assert words(native, ["--port", "1"], before=["/usr/bin/stdbuf", "-oL"], variables=["A"]) == [
        *("/usr/bin/stdbuf", "-oL", "/opt/llama.cpp/current/bin/rpc-server", "--port", "1")
    ]


def test_what_the_image_would_start_by_itself_does_not_count() -> None:
    line = words(arguments=["--port", "1"], before=["/usr/bin/stdbuf", "-oL"])
    end = ["--entrypoint", "/usr/bin/stdbuf", IMAGE, "-oL", "/opt/llama.cpp/current/bin/ggml-rpc-server", "--port", "1"]
    assert line[-len(end) :] == end


def test_it_may_nothing_but_what_it_is_given() -> None:
    line = words()
    assert {"--rm", "--read-only"} <= set(line)
    wanted = {"--cap-drop": "ALL", "--security-opt": "no-new-privileges", "--pull": "never"}
    assert {option: values(option) for option in wanted} == {option: [value] for option, value in wanted.items()}
    assert values("--user") == ["995:994"]
    assert not {"--privileged", "--cap-add", "--volume", "--device", "--group-add", "--memory"} & set(line)


def test_it_has_the_hosts_network_where_docker_maps_users_too() -> None:
    """Seen for real: "cannot share the host's network namespace when user namespaces are enabled"."""
    assert (values("--network"), values("--userns")) == (["host"], ["host"])


def test_devices_and_the_groups_that_they_belong_to() -> None:
    assert values("--device", plan={"devices": ("/dev/kfd", "/dev/dri")}) == ["/dev/kfd", "/dev/dri"]
    assert values("--group-add", found=replace(PROGRAM, user=replace(USER, groups=(44, 109)))) == ["44", "109"]


def test_its_memory_is_limited_and_swap_is_none_beside_it() -> None:
    for option in ("--memory", "--memory-swap"):
        assert values(option, plan={"container_memory": 4096}) == ["4096m"]


def test_memory_is_locked_without_a_limit_where_that_can_be_had() -> None:
    assert values("--ulimit") == ["memlock=-1"]
    assert values("--ulimit", found=replace(PROGRAM, user=replace(USER, unlimited=False))) == []


def test_a_variables_value_is_not_in_the_command_line() -> None:
    assert values("--env", variables=["B", "A"])[-3:] == ["GPUQUILT_STATE", "A", "B"]


def test_files_are_there_for_reading_and_nothing_that_lies_beside() -> None:
    home, first, second = values("--mount", files=["/srv/b.gguf", '/srv/a, "b".gguf'])
    assert home == "type=bind,source=/var/cache/llama.cpp,target=/var/cache/llama.cpp"
    assert first == "type=bind,source=/srv/b.gguf,target=/srv/b.gguf,readonly"
    assert next(csv.reader([second])) == ["type=bind", 'source=/srv/a, "b".gguf', 'target=/srv/a, "b".gguf', "readonly"]
    assert values("--mount") == [home]


@pytest.mark.parametrize(
    ("image", "user", "wanted"),
    [
        ("", None, Program("bin/ggml-rpc-server")),
        ("", USER, Program("bin/ggml-rpc-server")),
        (IMAGE, USER, PROGRAM),
        (IMAGE, None, None),
    ],
)
def test_a_program_in_an_image_needs_its_user(image: str, user: Identity | None, wanted: Program | None) -> None:
    assert program(replace(manifest(), image=image), "rpc-server", user) == wanted
