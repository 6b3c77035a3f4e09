"""Taking back: nothing without its name, and of what is named all."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from roles.base.machine import HOME
from tests.conftest import ROOT
from tests.unit.fakes import Run, deploy, fake, inventory

REMOVE = ROOT / "deploys" / "remove.py"
THERE = {
    'echo "$path"': ["/opt/llama.cpp/releases", "/etc/gpuquilt"],
    "getent passwd llama | cut": [HOME],
    "basename": ["rpc-server.service ours=yes", "rpc-server.service file=" + "a" * 64],
}


def remove(folder: Path, *names: str, answers: Mapping[str, list[str]] = {}, machine: Mapping[str, str] = {}) -> Run:
    """Take something back from two hosts."""
    hosts = [fake("w1", machine, answers), fake("w2", {}, answers)]
    data = [word for name in names for word in ("--data", f"remove={name}")]
    return deploy(inventory(folder, workers=hosts), *data, script=REMOVE)


def told(run: Run) -> str:
    return "\n".join(command for host, command in run.commands if host == "w1")


def test_nothing_is_removed_that_is_not_named(tmp_path: Path) -> None:
    run = remove(tmp_path, answers=THERE)
    assert run.ended.status == 1
    assert "nothing was removed, because" in run.ended.text
    assert "names with commas between them, such as remove=docker,nvidia" in run.ended.text
    assert "Traceback" not in run.ended.text
    assert run.hosts_told("rm ") == []


def test_a_name_that_we_do_not_know_is_refused(tmp_path: Path) -> None:
    run = remove(tmp_path, "llama_cpp,everything", answers=THERE)
    assert run.ended.status == 1
    assert "everything" in run.ended.text
    assert run.hosts_told("rm ") == []


def test_without_root_no_host_is_touched(tmp_path: Path) -> None:
    run = remove(tmp_path, "llama_cpp", answers=THERE, machine={"user": "1000"})
    assert run.ended.status == 1
    assert "w1: we are not root there" in run.ended.text
    assert run.hosts_told("rm ") == []


@pytest.mark.parametrize(
    "command",
    [
        "systemctl disable --now rpc-server.service; rm -f /etc/systemd/system/rpc-server.service; systemctl daemon-reload",
        "rm -rf --one-file-system /opt/llama.cpp/releases",
        "userdel llama",
    ],
)
def test_what_serves_is_removed_by_its_name(command: str, tmp_path: Path) -> None:
    run = remove(tmp_path, "llama_cpp", answers=THERE)
    assert run.ended.status == 0, run.ended.text
    assert command in told(run)


def test_a_user_and_a_unit_of_somebody_else_stay(tmp_path: Path) -> None:
    theirs = THERE | {"getent passwd llama | cut": ["/home/llama"], "basename": ["rpc-server.service file=" + "a" * 64]}
    run = remove(tmp_path, "llama_cpp", answers=theirs)
    assert run.ended.status == 0, run.ended.text
    assert "userdel" not in told(run)
    assert "disable --now rpc-server" not in told(run)


def test_where_nothing_is_left_nothing_is_done(tmp_path: Path) -> None:
    run = remove(tmp_path, "llama_cpp")
    assert run.ended.status == 0, run.ended.text
    assert "rm -rf" not in told(run)


def test_what_is_not_named_stays(tmp_path: Path) -> None:
    run = remove(tmp_path, "docker", answers=THERE)
    assert run.ended.status == 0, run.ended.text
    assert "/opt/llama.cpp" not in told(run)
    assert "rpc-server" not in told(run)
