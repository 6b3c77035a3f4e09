"""deploys/prepare.py on fake hosts that have Docker, or are to have it."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Literal

import pytest

from roles import docker
from roles.base import PACKAGES
from roles.base.settings import HostSettings
from roles.cluster.driver import Driver
from roles.cluster.provision import MachinePlan
from roles.docker import seen
from roles.docker.daemon import ROTATION
from roles.docker.settings import Settings
from tests.conftest import ROOT
from tests.unit.docker.examples import INFO, TRIXIE
from tests.unit.fakes import GOOD, MODEL, Run, deploy, fake, inventory

PREPARE = ROOT / "deploys" / "prepare.py"
ASKED = "docker-buildx-plugin"
"""A word of the command that looks at Docker."""
DOCKER_INFO = f"info {json.dumps(INFO)}"
RECORD = f"record {json.dumps({'live-restore': True, 'log-opts': ROTATION})}"


def prepared(folder: Path, engine: str = "distribution", **says: list[str]) -> Run:
    """The run on hosts that say this of Docker."""
    installed = [f"installed {name}" for name in [*PACKAGES, *seen.DISTRIBUTION, "iptables"]]
    # What base asks for.
    system = {"uname -s": ["Linux"], "useradd": ["/usr/sbin/useradd"]}
    machines = []
    for name, lines in says.items():
        answers = {ASKED: lines, "db:Status-Status": installed, **system}
        machines.append(fake(name, answers=answers, **GOOD, **MODEL, docker_engine=engine))
    return deploy(inventory(folder, workers=machines, heads=machines[:1]), script=PREPARE)


def test_a_host_whose_containers_are_ours_gets_docker_by_itself(tmp_path: Path) -> None:
    machine = fake("head", answers={ASKED: ["system debian trixie"]}, **GOOD, **MODEL, runtime="docker")
    other = fake("w1", answers={ASKED: ["system debian trixie"]}, **GOOD, **MODEL)
    run = deploy(inventory(tmp_path, workers=[machine, other], heads=[machine]), "--dry", script=PREPARE)
    assert run.ended.status == 0, run.ended.text
    assert set(run.hosts_told(ASKED)) == {"head"}


def of_docker(run: Run) -> list[tuple[str, str]]:
    """The commands that are about Docker, and not a look at it, as (host, command)."""
    return [(host, command) for host, command in run.commands if "docker" in command and "dpkg-query" not in command]


@pytest.mark.parametrize("engine", ["none", "auto"])
def test_where_none_is_wanted_nobody_looks(tmp_path: Path, engine: str) -> None:
    run = prepared(tmp_path, engine=engine, head=["snap 24.0.5"])
    assert run.ended.status == 0, run.ended.text
    assert not run.hosts_told(ASKED)
    assert of_docker(run) == []


def test_a_daemon_that_is_older_than_its_file_is_restarted_without_a_reload_of_systemd_and_no_other_is(tmp_path: Path) -> None:
    """Field report B13: a daemon-reload takes the GPU from a container that has it by the toolkit's hook."""
    as_wanted = [*TRIXIE, RECORD, DOCKER_INFO]
    older = [line.replace("changed 1796096955", "changed 1796099999") for line in as_wanted]
    run = prepared(tmp_path, head=as_wanted, w1=older)
    assert run.ended.status == 0, run.ended.text
    assert set(run.hosts_told(ASKED)) == {"head", "w1"}
    ((host, restart),) = of_docker(run)
    assert host == "w1"
    assert "live-restore" in restart
    assert not run.hosts_told("daemon-reload")


def test_what_is_wrong_is_said_before_anything_is_changed(tmp_path: Path) -> None:
    run = prepared(tmp_path, head=[*TRIXIE, "snap 24.0.5", "file {"])
    assert run.ended.status != 0
    assert "head: it has Docker 24.0.5 as a snap" in " ".join(run.ended.text.split())
    assert of_docker(run) == []


def checked(monkeypatch: pytest.MonkeyPatch, engine: str, machine: MachinePlan, *lines: str) -> list[str]:
    """What is said against a host that says this of Docker."""
    monkeypatch.setattr(docker, "host", SimpleNamespace(get_fact=lambda _: seen.parse(lines)))
    return docker.check(machine, HostSettings({Settings: Settings.model_validate({"engine": engine})}))


def test_containers_of_ours_need_a_docker_and_natives_none(monkeypatch: pytest.MonkeyPatch) -> None:
    native, container = MachinePlan(), MachinePlan(runtime="docker")
    assert checked(monkeypatch, "none", native) == []
    assert checked(monkeypatch, "auto", native, "snap 24.0.5") == []
    assert checked(monkeypatch, "auto", container, "system debian trixie") == []
    assert checked(monkeypatch, "none", container, *TRIXIE) == []
    assert checked(monkeypatch, "none", container) == [
        'runtime = "docker" needs Docker, which is not there, and docker_engine = "none" forbids to install it: install'
        " Docker yourself, or take docker_engine out, and run again."
    ]
    (snap,) = checked(monkeypatch, "none", container, "snap 24.0.5")
    assert snap.startswith("it has Docker 24.0.5 as a snap")


@pytest.mark.parametrize("engine", ["auto", "distribution", "docker"])
def test_a_docker_that_no_package_brought_is_not_written_over(monkeypatch: pytest.MonkeyPatch, engine: str) -> None:
    container = MachinePlan(runtime="docker")
    by_hand = ["system debian trixie", "state active", DOCKER_INFO, "client"]
    assert checked(monkeypatch, engine, container, *by_hand) == [
        "it has Docker 26.1.5+dfsg1, which is of neither package docker.io nor docker-ce, and would be written over: set"
        ' docker_engine = "none" to use it as it is, or take it out, and run again.'
    ]
    assert checked(monkeypatch, "none", container, *by_hand) == []
    assert checked(monkeypatch, "none", container, *by_hand[:3]) == [
        "its services start containers with /usr/bin/docker, which is not there: make that a link to its docker, and run again."
    ]
    (too_old,) = checked(monkeypatch, "none", container, *by_hand[:2], DOCKER_INFO.replace("26.1.5", "19.3.1"), "client")
    assert too_old == (
        "its Docker (19.3.1+dfsg1) is too old to build images of llama.cpp, which takes 20.10 or newer: upgrade it, and"
        " run again."
    )


@pytest.mark.parametrize(("engine", "runtime", "asked"), [("none", "native", 0), ("none", "docker", 1), ("docker", "native", 1)])
def test_who_needs_gpus_in_containers_learns_whether_docker_gives_them(
    monkeypatch: pytest.MonkeyPatch, engine: str, runtime: Literal["native", "docker"], asked: int
) -> None:
    calls: list[bool] = []
    monkeypatch.setattr(docker.operations, "gives_gpus", lambda name, ours: calls.append(ours))
    machine = MachinePlan(runtime=runtime, driver=Driver("580.95.05", 580, "open", "loaded"))
    docker.settle._inner(machine, Settings.model_validate({"engine": engine}))
    assert calls == [runtime == "docker"] * asked


def test_the_look_asks_for_every_package_that_is_decided_on() -> None:
    asked = seen.COMMAND.split()
    assert {*seen.DISTRIBUTION, *seen.DOCKER, *seen.OLD, *seen.TOOLKIT} <= set(asked)
    assert "[ -x /usr/bin/docker ] && echo client" in seen.COMMAND
