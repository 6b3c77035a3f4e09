"""What is done to a host, and that nothing is done to one that is as it should be."""

from __future__ import annotations

import json
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyinfra.api import FunctionCommand
from pyinfra.context import ctx_host, ctx_state
from pyinfra_testing.util import FakeState, create_host  # type: ignore[import-untyped]

from roles.base.apt import Apt, Record
from roles.base.facts import AptFact, MissingPackagesFact, RecordFact
from roles.base.templates import render
from roles.docker import decisions, operations, seen
from roles.docker.decisions import texts
from roles.docker.facts import DockerFact
from roles.docker.seen import Seen
from tests.unit.docker.examples import INFO, bare, settings, shown, with_text

WANTED = settings()
READY: dict[str, Any] = {
    **INFO,
    "ServerVersion": "29.7.2",
    "CDISpecDirs": ["/etc/cdi", "/var/run/cdi"],
    "DiscoveredDevices": [{"Source": "cdi", "ID": "nvidia.com/gpu=all"}],
}


def commands(
    operation: Any,
    shows: Seen,
    missing: list[str] | None = None,
    record: Record | None = None,
    apt: Apt | None = None,
    **arguments: Any,
) -> list[str]:
    """What an operation yields on a host that shows this; of work that runs on the host by a function, its arguments.

    :param record: the packages that came by us
    :param apt: the package sources
    """
    facts = {DockerFact: shows, MissingPackagesFact: missing or [], RecordFact: record or Record(), AptFact: apt or Apt()}
    state = FakeState()
    host = create_host(state)
    host.get_fact = lambda fact, **_: facts[fact]
    with ctx_state.use(state), ctx_host.use(host):
        yielded = list(operation._inner(**arguments))
    return [" ".join(map(str, command.args)) if isinstance(command, FunctionCommand) else str(command) for command in yielded]


def as_wanted() -> Seen:
    """Docker as it is to be."""
    before = shown("file {}")
    return with_text(before, texts(before, WANTED, nvidia=False))


def test_a_host_that_is_as_it_should_be_is_not_touched() -> None:
    there = as_wanted()
    assert commands(operations.installed, there, settings=WANTED, nvidia=True) == []
    assert commands(operations.configured, there, settings=WANTED, nvidia=False) == []
    assert commands(operations.running, there) == []
    assert commands(operations.gives_gpus, shown("driver", info=READY), ours=True) == []
    assert commands(operations.unconfigured, shown()) == []
    assert commands(operations.toolkit_removed, shown()) == []


def test_what_is_missing_is_installed() -> None:
    (install,) = commands(operations.installed, bare("candidate docker.io 26.1.5"), ["docker.io"], settings=WANTED, nvidia=True)
    assert install.startswith("docker ['docker.io']")


def test_what_we_do_is_written_down_before_it_is_done() -> None:
    before = shown("file {}")
    record, write = commands(operations.configured, before, settings=WANTED, nvidia=False)
    assert record.startswith("mkdir -p /var/lib/gpuquilt && ")
    assert record.endswith("mv /var/lib/gpuquilt/docker.json.new /var/lib/gpuquilt/docker.json")
    assert shlex.quote(texts(before, WANTED, nvidia=False).options or "") in write
    # The run after one that broke off between the two.
    broken = replace(before, record=texts(before, WANTED, nvidia=False).record or "")
    assert commands(operations.configured, broken, settings=WANTED, nvidia=False) == [write]


def test_a_wish_that_is_taken_back_leaves_the_file() -> None:
    more = settings(options={"data-root": "/srv/docker"})
    there = with_text(shown("file {}"), texts(shown("file {}"), more, nvidia=False))
    record, write = commands(operations.configured, there, settings=WANTED, nvidia=False)
    assert "data-root" not in record + write


def test_a_file_that_cannot_be_read_stays() -> None:
    (failure,) = commands(operations.configured, shown("file {"), settings=WANTED, nvidia=False)
    assert failure.endswith(">&2; exit 1")
    assert "/etc/docker/daemon.json cannot be read (line 1" in failure


def test_a_daemon_that_is_not_started_at_boot_will_be() -> None:
    assert commands(operations.running, shown("boot disabled")) == ["systemctl enable --quiet docker.service"]
    (failure,) = commands(operations.running, shown("boot masked"))
    assert "docker.service is masked: run systemctl unmask docker.service docker.socket" in failure


def test_a_restart_that_changes_nothing_is_a_failure() -> None:
    restart, failure = commands(operations.running, shown(info={**INFO, "LiveRestoreEnabled": False}))
    assert "systemctl restart docker.service" in restart
    assert "Docker was restarted, and still it does not keep containers running" in failure


def test_the_toolkit_is_pinned_before_it_comes() -> None:
    repository, pin, install = commands(operations.toolkit, shown(), [decisions.BASE], settings=WANTED)
    assert "nvidia.github.io/libnvidia-container" in repository
    assert shlex.quote(decisions.preferences(WANTED)) in pin
    assert install.startswith("nvidia-container-toolkit ['nvidia-container-toolkit-base']")


def toolkit(version: str, *lines: str) -> Seen:
    return shown(f"package nvidia-container-toolkit-base {version} installed", *lines)


def pinned(version: str) -> list[str]:
    return [f"pin {line}" for line in decisions.preferences(settings(toolkit_version=version)).splitlines()]


def test_a_toolkit_that_is_not_by_us_stays_whichever_it_is() -> None:
    assert commands(operations.toolkit, toolkit("1.17.8-1"), settings=WANTED) == []


def test_a_toolkit_that_is_by_us_moves_with_its_setting_alone() -> None:
    there = toolkit("1.19.0-1", *pinned("1.19.0"))
    assert len(commands(operations.toolkit, there, settings=settings(toolkit_version="1.19.0"))) == 1  # the repository
    _, pin, move = commands(operations.toolkit, there, settings=settings(toolkit_version="1.18.2"))
    assert "Pin: version 1.18.2-1" in pin
    assert move.endswith("True")


def test_gpus_are_asked_for_once_their_driver_is_loaded() -> None:
    assert commands(operations.gives_gpus, shown(info=INFO), ours=True) == []
    refresh, failure = commands(operations.gives_gpus, shown("driver", info=INFO), ours=True)
    assert "systemctl restart nvidia-cdi-refresh.service" in refresh
    assert "Docker cannot give a container a GPU" in failure


def test_gpus_without_all_of_their_devices_are_described_anew() -> None:
    refresh, failure = commands(operations.gives_gpus, shown("driver", "incomplete /etc/cdi/a.json", info=READY), ours=True)
    assert "systemctl restart nvidia-cdi-refresh.service" in refresh
    assert "run nvidia-ctk cdi generate --output=/etc/cdi/a.json there" in failure


def test_what_is_taken_back() -> None:
    there = toolkit("1.19.0-1", *pinned("1.19.0"))
    assert commands(operations.toolkit_removed, there) == ["rm /etc/apt/preferences.d/gpuquilt-nvidia-container-toolkit"]
    assert commands(operations.unconfigured, replace(as_wanted(), text=as_wanted().text)) == [
        "rm /etc/docker/daemon.json",
        "rm /var/lib/gpuquilt/docker.json",
    ]
    (purge,) = commands(operations.uninstalled, shown(), record=Record(kept=True, states={"docker.io": "installed"}))
    assert purge.startswith("docker ['docker.io'] ")
    assert "rm -f /var/lib/docker/nuke-graph-directory.sh" in purge
    (purge,) = commands(operations.uninstalled, shown(), record=Record(kept=True, states={"iptables": "installed"}))
    assert purge == "docker ['iptables'] true", "containers of another Docker go on"
    assert commands(operations.uninstalled, shown()) == []


def test_a_docker_of_the_users_own_keeps_its_repository() -> None:
    file = decisions.repository(bare(), WANTED).file
    assert commands(operations.uninstalled, bare(), apt=Apt(files={file: ""})) == [f"rm -f {file}"]
    assert commands(operations.uninstalled, bare("package docker-ce 5:29.1.3 installed"), apt=Apt(files={file: ""})) == []


SCRIPTS = {
    "restart": {"file": "/etc/docker/daemon.json", "live": "{{.LiveRestoreEnabled}}", "version": "{{.ServerVersion}}"},
    "daemon": {"file": "/etc/docker/daemon.json", "text": '{"it\'s": 1}\n'},
    "refresh": {"gpu": "nvidia.com/gpu"},
    "spare": {},
}
HOSTILE = 'a\'; touch /tmp/no "$(touch /tmp/no)"'


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_script_is_one_that_a_shell_understands(name: str) -> None:
    script = render(f"docker/{name}.sh.j2", **{"host": HOSTILE, "ends_containers": HOSTILE, **SCRIPTS[name]})
    checked = subprocess.run(["sh", "-n"], input=script, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    assert script.count(shlex.quote(HOSTILE)) == script.count("touch") // 2


def test_the_look_is_one_that_a_shell_understands() -> None:
    assert subprocess.run(["sh", "-n"], input=seen.COMMAND, text=True, check=False).returncode == 0


YAML = "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices:\n- name: all\n  containerEdits:\n    deviceNodes:\n"
JSON = '{"cdiVersion":"0.5.0","kind":"nvidia.com/gpu","devices":[{"name":"all","containerEdits":{"deviceNodes":['
INDENTED = '{\n "kind": "nvidia.com/gpu",\n "devices": [\n  {\n   "name": "all"\n  }\n ]\n}\n'
TOOLS = "    - path: /dev/nvidia-uvm-tools\n"
UVM = TOOLS + "    - path: /dev/nvidia-uvm\n"
OTHER = "kind: k8s.nvidia.com/gpu\ndevices:\n- name: all\n"
ONE = YAML.replace("all", '"all-but-one"')
"""Specifications: of all GPUs, in three ways of writing; what names devices; of no GPU of ours; of some GPUs."""


@pytest.mark.parametrize(
    ("files", "found", "incomplete"),
    [
        ({}, [], ""),
        ({"run/nvidia.yaml": YAML + UVM}, ["run/nvidia.yaml"], ""),
        ({"run/nvidia.yaml": YAML + TOOLS}, ["run/nvidia.yaml"], "run/nvidia.yaml"),
        ({"etc/a.json": JSON + '{"path":"/dev/nvidia-uvm"}]}}]}'}, ["etc/a.json"], ""),
        ({"etc/a.json": JSON + '{"path":"/dev/nvidia-uvm-tools"}]}}]}'}, ["etc/a.json"], "etc/a.json"),
        ({"etc/a.json": INDENTED}, ["etc/a.json"], "etc/a.json"),
        # What /run holds is what counts.
        ({"etc/a.json": JSON, "run/nvidia.yaml": YAML + UVM}, ["etc/a.json", "run/nvidia.yaml"], ""),
        ({"etc/a.yaml": YAML + UVM, "run/nvidia.yaml": YAML}, ["etc/a.yaml", "run/nvidia.yaml"], "run/nvidia.yaml"),
        # Nobody asks for what these describe, and Docker does not read the last.
        ({"run/k8s.yaml": OTHER, "run/one.yaml": ONE, "run/nvidia.yaml.bak": YAML}, ["run/one.yaml"], ""),
    ],
)
def test_a_specification_that_lacks_a_device_is_found(
    tmp_path: Path, files: dict[str, str], found: list[str], incomplete: str
) -> None:
    for folder in ("etc", "run"):
        (tmp_path / folder).mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(text)

    def look(device: str) -> Seen:
        script = seen.SPECIFICATIONS.replace("-c /dev/nvidia-uvm", f"-c {device}")
        for folder in ("etc", "run"):
            script = script.replace(f"/{folder}/cdi", str(tmp_path / folder))
        shows = subprocess.run(["sh"], input=script, capture_output=True, text=True, check=False).stdout
        return seen.parse(shows.replace(f"{tmp_path}/", "").splitlines())

    assert look("/dev/null") == Seen(specifications=tuple(found), incomplete=incomplete)
    assert look("/dev/none") == Seen(specifications=tuple(found)), "the host has no such device"


def test_a_file_that_docker_refuses_is_not_put_in_place(tmp_path: Path) -> None:
    """With a dockerd of our own making: it refuses every file."""
    dockerd = tmp_path / "bin" / "dockerd"
    dockerd.parent.mkdir()
    dockerd.write_text("#!/bin/sh\n[ \"$1\" = --help ] && echo ' --validate' && exit\necho 'it is bogus' >&2\nexit 1\n")
    dockerd.chmod(0o755)
    file = tmp_path / "etc" / "daemon.json"
    file.parent.mkdir()
    file.write_text("{}")
    script = render("docker/daemon.sh.j2", host="w1", file=str(file), text='{"bogus": 1}\n')
    environment = {"PATH": f"{dockerd.parent}:/usr/bin:/bin"}
    ended = subprocess.run(["sh"], input=script, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr == (
        f"w1: Docker refuses what {file} would say (it is bogus): correct it, or docker_options, and run again;"
        " nothing was changed.\n"
    )
    assert [path.name for path in file.parent.iterdir()] == ["daemon.json"]
    assert file.read_text() == "{}"
    # One that knows no --validate is not asked.
    dockerd.write_text("#!/bin/sh\nexit 125\n")
    file.chmod(0o640)
    subprocess.run(["sh"], input=script, env=environment, check=True, text=True)
    assert json.loads(file.read_text()) == {"bogus": 1}
    assert file.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize(
    ("docker", "restarted", "sentence"),
    [
        ("case $1 in ps) ;; *) echo true ;; esac", True, ""),
        ("case $1 in ps) echo c0ffee ;; *) echo true ;; esac", True, ""),
        ("case $1 in ps) echo c0ffee ;; *) echo false ;; esac", False, "w1: Docker has to be restarted (why), which would end"),
        ("exit 124", False, "w1: Docker does not answer, and was not restarted, because containers may run"),
    ],
)
def test_a_restart_ends_no_container(tmp_path: Path, docker: str, restarted: bool, sentence: str) -> None:
    """With programs of our own making: containers that run and live-restore, as Docker tells, or does not."""
    for name, script in {
        "docker": docker,
        "dockerd": "exit 125",
        "sleep": "",
        "systemctl": f'echo "$1" >>{tmp_path}/log',
    }.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    values = {**SCRIPTS["restart"], "host": "w1", "ends_containers": decisions.ends_containers("why")}
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    script = render("docker/restart.sh.j2", **values)
    ended = subprocess.run(["sh"], input=script, env=environment, capture_output=True, text=True, check=False)
    assert ended.stderr.startswith(sentence)
    assert (ended.returncode == 0) is restarted
    assert ("restart" in (tmp_path / "log").read_text().splitlines()) is restarted
