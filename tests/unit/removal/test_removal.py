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


def test_what_serves_is_removed_by_its_name(tmp_path: Path) -> None:
    run = remove(tmp_path, "llama_cpp", answers=THERE)
    assert run.ended.status == 0, run.ended.text
    unit = "/etc/systemd/system/rpc-server.service"
    for command in (
        f"systemctl disable --now rpc-server.service; rm -f {unit}; systemctl daemon-reload",
        "rm -rf --one-file-system /opt/llama.cpp/releases",
        "userdel llama",
    ):
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


@pytest.mark.parametrize("empty", [True, False])
def test_a_folder_that_others_have_something_in_stays_and_nothing_is_changed_by_that(empty: bool, tmp_path: Path) -> None:
    answers = {"[ -d /var/lib/gpuquilt ]": ["empty"] if empty else []}
    for name in ("llama_cpp", "passthrough"):
        run = remove(tmp_path, name, answers=answers)
        assert run.ended.status == 0, run.ended.text
        assert ("rmdir /var/lib/gpuquilt\n" in told(run) + "\n") == empty


def test_what_is_not_named_stays(tmp_path: Path) -> None:
    run = remove(tmp_path, "docker", answers=THERE)
    assert run.ended.status == 0, run.ended.text
    assert "/opt/llama.cpp" not in told(run)
    assert "rpc-server" not in told(run)


def test_what_the_inventory_names_for_one_host_stays_on_the_others(tmp_path: Path) -> None:
    hosts = [fake("w1", {}, THERE, remove=["llama_cpp"]), fake("w2", {}, THERE)]
    run = deploy(inventory(tmp_path, workers=hosts), script=REMOVE)
    assert run.ended.status == 0, run.ended.text
    assert run.hosts_told("userdel llama") == ["w1"]


ARGUMENT = "running root=/dev/sda1 gpuquilt.passthrough=0000:0e:00.0/10de:1b06"


@pytest.mark.parametrize(
    ("boots", "said"),
    [
        (["loader grub"], set()),
        (["loader grub", ARGUMENT], {"a reboot is owed: until then the cards are bound to vfio-pci"}),
        ([ARGUMENT], {"take gpuquilt.passthrough from the kernel's arguments by hand, reboot"}),
    ],
)
def test_it_is_said_how_cards_come_back(boots: list[str], said: set[str], tmp_path: Path) -> None:
    run = remove(tmp_path, "passthrough", answers={"hook-functions": boots})
    assert run.ended.status == 0, run.ended.text
    sentences = ("a reboot is owed: until then the cards are bound to vfio-pci", "take gpuquilt.passthrough from the kernel's")
    assert {line for line in said if line in run.ended.text} == said
    assert sum(line in run.ended.text for line in sentences) == len(said)
