"""The answers of machines, as they really were, are read rightly."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roles.cluster.banner import Device
from tests.verify import reading
from tests.verify.reading import Guard, Socket

ANSWERS = Path(__file__).parent / "answers"

OLD = "e3a74b299085cd00013804f7fca2e03441b2da20"
NEW = "0c1e57098bba43ac29e6e3b677cdceebdd22334f"

SOCKETS = """\
LISTEN     0      1      198.18.77.11:50052      0.0.0.0:* users:(("ggml-rpc-server",pid=812,fd=5)) uid:996 ino:61416 sk:1 cgroup:/system.slice/rpc-server.service <->
ESTAB      0      0      198.18.77.11%host0:50052 198.18.77.10:43108 users:(("ggml-rpc-server",pid=812,fd=6)) uid:996 ino:83674 sk:4 cgroup:/system.slice/rpc-server.service <->
ESTAB      33     0      198.18.77.11:50052 198.18.77.20:43110 ino:0 sk:5 <->
CLOSE-WAIT 1      0      198.18.77.11:43108 198.18.77.12:50052 users:(("llama-server",pid=900,fd=7),("llama-server",pid=901,fd=7)) timer:(keepalive,119min,0) uid:996 ino:9 sk:6 <->
LISTEN     0      128            [::]:22        [::]:*     users:(("sshd",pid=76,fd=7)) ino:61424 sk:3 cgroup:/system.slice/ssh.service v6only:1 <->
"""  # noqa: E501


def test_sockets_are_read() -> None:
    assert reading.sockets(SOCKETS) == [
        Socket("LISTEN", "198.18.77.11:50052", "0.0.0.0:*", 996, frozenset({812})),
        Socket("ESTAB", "198.18.77.11:50052", "198.18.77.10:43108", 996, frozenset({812})),
        Socket("ESTAB", "198.18.77.11:50052", "198.18.77.20:43110", 0, frozenset()),
        Socket("CLOSE-WAIT", "198.18.77.11:43108", "198.18.77.12:50052", 996, frozenset({900, 901})),
        Socket("LISTEN", "[::]:22", "[::]:*", 0, frozenset({76})),
    ]
    assert [socket.port for socket in reading.sockets(SOCKETS)] == ["50052", "50052", "50052", "43108", "22"]


SERVICE = """\
MainPID=900
Result=success
NRestarts=3
ActiveState=active
SubState=running
UnitFileState=enabled
InvocationID=8f3c
Program=/opt/llama.cpp/releases/0c1e57098bba-debian13/bin/llama-server (deleted)
Digest=aa
Argument=/opt/llama.cpp/current/bin/llama-server
Argument=--rpc
Argument=198.18.77.11:50052,198.18.77.12:50052
Argument=-m
Argument=/srv/models/a=b.gguf
Mapped=/opt/llama.cpp/releases/0c1e57098bba-debian13/lib/libggml.so.0
Mapped=/usr/lib/x86_64-linux-gnu/libc.so.6
Mapped=/srv/models/a=b.gguf
Opened=/dev/null
Opened=/srv/models/old.gguf (deleted)
Started=1764532930
"""


def test_service_is_read() -> None:
    seen = reading.service(SERVICE)
    assert (seen.running, seen.enabled, seen.pid, seen.restarts, seen.invocation) == (True, True, 900, 3, "8f3c")
    assert seen.program.endswith("/bin/llama-server (deleted)")
    assert seen.option("--rpc") == "198.18.77.11:50052,198.18.77.12:50052"
    assert seen.option("-m", "--model") == "/srv/models/a=b.gguf"
    assert seen.option("--host") is None
    assert len(seen.mapped) == 3
    assert len(seen.opened) == 2
    assert not seen.contained
    assert reading.service(SERVICE + "Contained=\n").contained


@pytest.mark.parametrize(
    ("path", "changed", "expected"),
    [
        # Mapped or open: whatever its times say, as after a chmod.
        ("/srv/models/a=b.gguf", 1764532999, True),
        ("/srv/models/old.gguf", 1764532000, False),
        # Neither: it was there before the start, or came after it.
        ("/srv/models/c.gguf", 1764532930, True),
        ("/srv/models/c.gguf", 1764532931, False),
    ],
)
def test_whether_the_file_that_is_there_is_served(path: str, changed: int, expected: bool) -> None:
    assert reading.service(SERVICE).serves(path, changed) == expected


# Python's own mmap would keep the file open as well; 1 and 1 are PROT_READ and MAP_SHARED.
HOLDS = {
    "mapped": (
        "import ctypes; file = open(path, 'rb');"
        " ctypes.CDLL(None).mmap(None, 1, 1, 1, file.fileno(), ctypes.c_long(0)); file.close()"
    ),
    "open": "found = open(path, 'rb')",
    "read": "found = open(path, 'rb').read()",
}


@pytest.mark.parametrize("way", HOLDS)
def test_a_file_that_is_exchanged_under_its_process_is_noticed(way: str, tmp_path: Path) -> None:
    """A real process; only systemd is played, which says that it was started a second after the file was made."""
    model = tmp_path / "a model.gguf"
    model.write_text("old")
    started = int(model.stat().st_ctime) + 1
    code = f"import sys; path = sys.argv[1]; {HOLDS[way]}; print(flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code, model], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"\n"
        (tmp_path / "systemctl").write_text(
            "#!/bin/sh\ncase $* in\n"
            f"*=MainPID*) echo {process.pid} ;;\n"
            f"*=ExecMainStart*) LC_ALL=C date -d @{started} '+%a %Y-%m-%d %H:%M:%S %Z' ;;\n"
            "esac\n"
        )
        (tmp_path / "systemctl").chmod(0o755)

        def serves() -> bool:
            environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "TZ": "Asia/Tokyo", "LC_ALL": "C"}
            command = ["sh", "-c", reading.service_command("llama-server.service")]
            shown = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
            assert shown.stderr == ""
            seen = reading.service(shown.stdout)
            assert seen.started == started
            return seen.serves(str(model), int(model.stat().st_ctime))

        assert serves()
        new = tmp_path / "new"
        new.write_text("new")
        while int(new.stat().st_ctime) <= started:
            time.sleep(0.1)
            new.touch()
        if way != "read":
            # Its own file, whose mode has changed since.
            model.chmod(0o644)
            assert serves()
        new.rename(model)
        assert not serves()
        assert process.stdin is not None
        process.stdin.close()


def test_unit_that_is_not_there_is_read() -> None:
    seen = reading.service("MainPID=0\nResult=success\nNRestarts=0\nActiveState=inactive\nSubState=dead\nUnitFileState=\n")
    assert (seen.running, seen.enabled, seen.pid, seen.state) == (False, False, 0, "inactive/dead")


@pytest.mark.parametrize(
    ("served", "asked", "strange"),
    [
        (["CUDA0", "CUDA1"], [], []),
        (["CPU"], [], ["CPU"]),
        (["CUDA0", "CPU"], [], ["CPU"]),
        (["CUDA0", "CPU"], ["CUDA0", "CPU"], []),
        (["CUDA0", "Vulkan0"], ["CUDA0", "CPU"], ["Vulkan0"]),
    ],
)
def test_what_a_worker_should_not_serve(served: list[str], asked: list[str], strange: list[str]) -> None:
    found = reading.strange([Device(name, "of some kind") for name in served], "cuda", asked)
    assert [device.name for device in found] == strange


@given(st.text())
def test_no_answer_raises(text: str) -> None:
    reading.sockets(text)
    reading.digests(text)


@pytest.mark.parametrize(
    ("text", "commit", "named"),
    [
        ("version: 1 (e3a74b299)\nbuilt with GNU 14.2.0 for Linux x86_64\n", OLD, True),
        ("version: 1 (e3a74b299)\nbuilt with GNU 14.2.0 for Linux x86_64\n", NEW, False),
        ("version: 0.0.1 (build 1, commit 0c1e57098)\nbuilt with GNU 14.2.0 for Linux x86_64\n", NEW, True),
        ("version: 0 (unknown)\n", NEW, False),
        ("", NEW, False),
    ],
)
def test_version_names_the_commit(text: str, commit: str, named: bool) -> None:
    assert reading.version_names(text, commit) is named


def test_digests_are_read() -> None:
    assert reading.digests("aa  ./bin/a b\nbb  lib/c\n\\cc  odd\\nname\n") == {"bin/a b": "aa", "lib/c": "bb", "odd\\nname": "cc"}


def test_guard_is_read() -> None:
    assert reading.guard((ANSWERS / "guard.json").read_text()) == Guard(
        frozenset({"198.18.77.10", "198.18.77.20"}), frozenset({50052}), True
    )
    assert reading.guard("") == Guard()


@pytest.mark.parametrize(
    ("right", "addresses"),
    [
        ("198.18.77.10", {"198.18.77.10"}),
        ({"set": ["198.18.77.10", {"elem": {"val": "198.18.77.11", "timeout": 5}}]}, {"198.18.77.10", "198.18.77.11"}),
        ({"prefix": {"addr": "198.18.77.0", "len": 24}}, {'{"prefix": {"addr": "198.18.77.0", "len": 24}}'}),
    ],
)
def test_guard_knows_every_way_to_name_an_address(right: object, addresses: set[str]) -> None:
    match = {"match": {"op": "==", "left": {"payload": {"protocol": "ip", "field": "saddr"}}, "right": right}}
    text = json.dumps({"nftables": [{"rule": {"expr": [match, {"accept": None}]}}]})
    assert reading.guard(text) == Guard(frozenset(addresses), frozenset(), False)
