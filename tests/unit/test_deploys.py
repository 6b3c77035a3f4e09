"""The deploys as a user types them, on hosts that only answer: what is refused, and what a failure stops."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from io import StringIO
from pathlib import Path
from typing import Any

import pexpect  # type: ignore[import-untyped]
import pytest

from roles.cluster.state import CURRENT, LLAMA_SERVER, RELEASES, RPC_SERVER, HostState, generation
from tests.conftest import ROOT, pyinfra_command
from tests.unit.cluster.examples import NETWORK, NEWER, OLDER, good_plan, wanted
from tests.unit.fakes import ADDRESSES, CLUSTER, GOOD, LOOKING, MODEL, SEEN, Run, deploy, fake, good_inventory, inventory, is_look
from tests.unit.llama_cpp.examples import manifest

ROLLBACK = ROOT / "deploys" / "rollback.py"
COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def assert_refused(run: Run, *sentences: str) -> None:
    """The run has ended with these sentences, one a line, and nothing was done on any host but look at it once."""
    assert run.ended.status != 0
    text = run.ended.text
    lines = [line.removeprefix("    ") for line in text.partition("nothing was changed, because:\n")[2].splitlines()]
    for sentence in sentences:
        assert [line for line in lines if re.fullmatch(sentence, line)], f"{sentence!r} is not in {lines}"
    said = [line for line in lines if re.match(r"@fake/|inventory: ", line)]
    assert len(said) == len(sentences), said
    assert "Traceback" not in text
    assert "Starting operation" not in text
    assert_looked(run)


def assert_looked(run: Run) -> None:
    """Every host was told nothing but what shows what it is, in as many commands as there are facts of that."""
    assert [command for command in run.commands if not is_look(command[1])] == []
    assert all(count == len(LOOKING) for count in Counter(name for name, _ in run.commands).values())


def assert_left_alone(run: Run, name: str) -> None:
    """A host was looked at, once."""
    told = [command for host, command in run.commands if host == name]
    assert len(told) == len(LOOKING)
    assert [command for command in told if not is_look(command)] == []


UNUSABLE = ["@fake/w1:50052", "[2001:db8::1]:50052", ":50052", "192.0.2.12:0", "192.0.2.12:50052 "]


def test_every_fault_in_settings_and_hosts_is_found_at_once(tmp_path: Path) -> None:
    password = {"user": "1000", "sudo": "sudo: a password is required"}
    run = deploy(
        inventory(
            tmp_path,
            workers=[
                fake("w1", **GOOD | {"commit": "2222222"}),
                fake("w2", **GOOD, rpc_prot=50053, http_port="eighty", endpoints="w1:50052"),
            ],
            heads=[fake("head", password, network=NETWORK, _sudo=True, endpoints=UNUSABLE, **MODEL)],
            desks=[fake("lost", {"user": "1000"}, colour="red", **GOOD)],
        )
    )
    assert_refused(
        run,
        r"@fake/w1: commit = '2222222' is not valid \(.*\): the llama.cpp commit that every host runs: all 40 hex.*\.",
        r"@fake/w2: there is no setting 'rpc_prot': did you mean 'rpc_port'\?",
        r"@fake/w2: http_port = 'eighty' is not valid \(.*\): the TCP port .*\.",
        r"@fake/w2: endpoints = 'w1:50052' is not valid \(it is no list: put \[ \] around it\): .* each as host:port .*\.",
        r"@fake/head: endpoints = '\[2001:db8::1\]:50052' is not valid \(it is IPv6, .*\): .* each as host:port .*\.",
        r"@fake/head: endpoints = ':50052' is not valid \(it has no host\): .*\.",
        r"@fake/head: endpoints = '192.0.2.12:0' is not valid \(it has no port from 1 to 65535\): .*\.",
        r"@fake/head: endpoints = '192.0.2.12:50052 ' is not valid \(it has white space in it\): .*\.",
        r"@fake/head: the setting commit is missing: .*\.",
        r"@fake/head: sudo does not work without a password \(sudo: a password is required\): allow it with NOPASSWD .*\.",
        r"@fake/lost: there is no setting 'colour': take it out, .*\.",
        r"@fake/lost: it is in no group that we know: put it into `workers`, `heads` or `hypervisors`, or take it out\.",
        r"@fake/lost: we are not root there: log in as root .*\.",
    )


def test_arguments_of_single_operations_are_refused_as_data(tmp_path: Path) -> None:
    """With this one pyinfra would go on after any failure."""
    run = deploy(good_inventory(tmp_path), "--data", "_ignore_errors=true")
    who = ", ".join(f"@fake/{name}" for name in ("w1", "w2", "head"))
    assert_refused(run, rf"{who}: _ignore_errors would hold for every step of the run, failed ones included: take it out\.")


def test_a_service_of_the_users_own_is_not_replaced(tmp_path: Path) -> None:
    theirs = {SEEN: ["rpc-server.service ActiveState=active", f"rpc-server.service file={'f' * 64}"]}
    run = deploy(
        inventory(
            tmp_path, workers=[fake("w1", answers=theirs, **GOOD), fake("w2", **GOOD)], heads=[fake("head", **GOOD, **MODEL)]
        )
    )
    assert run.ended.status != 0
    assert "@fake/w1: /etc/systemd/system/rpc-server.service is not ours, and would be replaced: remove it" in run.ended.text
    assert "Starting operation" not in run.ended.text


def test_every_fault_of_the_cluster_is_found_at_once(tmp_path: Path) -> None:
    endpoints = ["192.0.2.11:50052", "@fake/w1:50052", "w9:50052"]
    run = deploy(
        inventory(
            tmp_path,
            workers=[fake("w1", **GOOD), fake("w2", {"architecture": "aarch64"}, **GOOD)],
            heads=[fake("head", **GOOD | {"commit": OLDER}, **MODEL, endpoints=endpoints)],
            desks=[fake("lost", **GOOD)],
        )
    )
    assert_refused(
        run,
        r"@fake/lost: it is in no group that we know: put it into `workers`, `heads` or `hypervisors`, or take it out\.",
        r"inventory: `commit` differs between hosts \(.*\): every host runs the same one, so set it for the group `all`\.",
        r"@fake/w2: its architecture is aarch64: only x86_64 is supported, so take the host out\.",
        r"@fake/head: endpoint '@fake/w1:50052' is listed twice: take one out, .*\.",
        r"@fake/head: endpoint 'w9:50052' names no worker of this inventory .*\.",
    )


def test_what_is_not_good_and_no_reason_to_stop_is_said_once(tmp_path: Path) -> None:
    card = {"gpus": ["GP102"], "backend": "cpu"}
    workers = [fake("w1", **GOOD, **card), fake("w2", **GOOD)]
    run = deploy(inventory(tmp_path, workers=workers, heads=[fake("head", **GOOD, **MODEL)]))
    assert run.ended.text.count("@fake/w1: GP102 is declared in `gpus` and is not seen") == 1
    assert "Starting operation" in run.ended.text


def test_options_that_could_leave_hosts_behind_are_refused(tmp_path: Path) -> None:
    run = deploy(good_inventory(tmp_path), "--limit", "heads", "--serial", "--no-wait", "--fail-percent", "50")
    assert_refused(
        run,
        r"inventory: --limit and --exclude would switch a part of the cluster, .*: run the command without them\.",
        r"inventory: with --serial hosts would not wait for each other: run the command without it\.",
        r"inventory: with --no-wait hosts would not wait for each other: run the command without it\.",
        r"inventory: --fail-percent would let a part of the cluster go on alone: run the command without it\.",
    )
    assert run.commands == []


def test_a_part_of_the_cluster_is_not_rolled_back_alone(tmp_path: Path) -> None:
    run = deploy(good_inventory(tmp_path), "--exclude", "@fake/w1", script=ROLLBACK)
    assert_refused(
        run, r"inventory: --limit and --exclude would switch a part of the cluster, .*: run the command without them\."
    )
    assert run.commands == []


def test_another_working_directory_is_refused(tmp_path: Path) -> None:
    run = deploy(good_inventory(tmp_path), cwd=tmp_path)
    assert_refused(
        run,
        r"inventory: config.py was not read, because pyinfra reads it from the working directory:"
        r" change into gpuquilt's folder and run the command again\.",
    )


# What follows uses a deploy of a few lines around the switch, whose build is one command and whose services are ready at once.

SMALL = """
from pyinfra import host
from pyinfra.operations import server
from roles import cluster
from roles.base.remote import HostError
from roles.cluster.look import look
from roles.cluster.state import LLAMA_SERVER, RPC_SERVER, Unit
from roles.cluster.switch import planned_units

seen = look([])
plan = seen.plan.hosts.get(host.name)
broken = [host.name] if host.data.get("_broken") else []

def ready(state, host, unit):
    if broken:
        broken.clear()
        raise HostError("it does not answer.")
    return 103.5 if plan.head else None

if plan:
    server.shell(name="Build", commands=["build the release"])
    for name, endpoints in planned_units(plan).items():
        seen.switch.offer(host.name, name, Unit(f"[Service]\\n# {plan.release}\\n", "192.0.2.1:1", endpoints))
    cluster.switch(dict.fromkeys(planned_units(plan), ready))
"""
STOP = f"systemctl stop {LLAMA_SERVER}"
START = {unit: f"systemctl restart --no-block {unit}" for unit in (RPC_SERVER, LLAMA_SERVER)}
FAILS = {">&2; exit 1": {"success": False}}
NO_COMPILER = {"build the release": {"success": False, "stderr": "no compiler"}}


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.py"
    path.write_text(SMALL)
    return path


def states(commit: str) -> dict[str, HostState]:
    """What the three hosts run once the small deploy has brought them to a commit."""
    found = wanted(good_plan(commit=commit))
    together = generation(state.release for state in found.values())
    return {
        name: replace(
            state,
            generation=together,
            units={unit: replace(there, text=f"[Service]\n# {state.release}\n") for unit, there in state.units.items()},
        )
        for name, state in found.items()
    }


def runs(state: HostState) -> dict[str, Any]:
    """Answers of a host that runs a state, and knows that it answered."""
    lines = [f"current {state.release}", f"verified {state.to_json()}"]
    for unit, there in state.units.items():
        properties = {
            "ActiveState": "active",
            "SubState": "running",
            "UnitFileState": "enabled",
            "ours": "yes",
            "file": sha256(there.text.encode()).hexdigest(),
            "program": f"{RELEASES}/{state.release}/bin/program",
        }
        lines += [f"{unit} {key}={value}" for key, value in properties.items()]
    if LLAMA_SERVER in state.units:
        lines += [f"connection ESTAB {ADDRESSES[name]}:50052" for name in ("w1", "w2")]
    return {SEEN: lines, "date +%s.%N": "100.0"}


def upgrade(folder: Path, broken: str = "", **answers: Mapping[str, Any]) -> Path:
    """The older commit runs and the newer is wanted; w1 is slow, so that the others could overtake it. There is a hypervisor.

    :param broken: the host whose service does not answer the first time that it is started
    :param answers: further answers of a host
    """
    before = states(OLDER)

    def there(name: str, **data: Any) -> tuple[str, dict[str, Any]]:
        everything = {**answers.get(name, {}), **runs(before[name]), **FAILS}
        return fake(name, answers=everything, _broken=name == broken, **GOOD, **data)

    workers = [there("w1", fake_delay=0.1), there("w2")]
    return inventory(folder, hypervisors=[fake("virt", **GOOD)], workers=workers, heads=[there("head")])


def positions(run: Run, words: str) -> list[int]:
    return [position for position, (_, command) in enumerate(run.commands) if words in command]


def remembered(run: Run, name: str, file: str) -> list[str]:
    """What a host was told to write into one of the files that hold states."""
    return [command for host, command in run.commands if host == name and command.startswith("printf") and file in command]


def test_an_upgrade_stops_the_head_then_starts_the_workers_then_the_head(tmp_path: Path, small: Path) -> None:
    run = deploy(upgrade(tmp_path), script=small)
    assert run.ended.status == 0, run.ended.text
    assert set(run.hosts_told(STOP)) == {"head"}
    assert sorted(run.hosts_told(START[RPC_SERVER])) == ["w1", "w2"]
    assert run.hosts_told(START[LLAMA_SERVER]) == ["head"]
    built = max(positions(run, "build the release"))
    workers = positions(run, START[RPC_SERVER])
    assert built < positions(run, STOP)[0] < min(workers) <= max(workers) < positions(run, START[LLAMA_SERVER])[0]
    assert "The endpoint answers again; downtime 3.5 s." in run.ended.text
    assert_left_alone(run, "virt")
    for name, state in states(OLDER).items():
        assert [state.release in command for command in remembered(run, name, "before.json")] == [True]
        assert [NEWER in command for command in remembered(run, name, "verified.json")] == [True]


def test_a_build_that_fails_on_one_worker_switches_no_host(tmp_path: Path, small: Path) -> None:
    run = deploy(upgrade(tmp_path, w1=NO_COMPILER), script=small)
    assert run.ended.status != 0
    assert sorted(run.hosts_told("build the release")) == ["head", "w1", "w2"]
    assert run.hosts_told("systemctl stop") == run.hosts_told("systemctl restart") == []


def test_the_literal_deploy_switches_no_host_when_a_build_fails(tmp_path: Path) -> None:
    good = {"active=$(systemctl is-active": "0", "uname -s": "Linux", "useradd": "/usr/sbin/useradd"}
    bad = {"active=$(systemctl is-active gpuquilt-build": "1", **good}
    run = deploy(
        inventory(
            tmp_path,
            workers=[fake("w1", answers=bad, **GOOD, fake_delay=0.02), fake("w2", answers=good, **GOOD)],
            heads=[fake("head", answers=good, **GOOD, **MODEL)],
        )
    )
    assert run.ended.status != 0
    assert re.search(r"@fake/w1: gpuquilt-build\S* failed \(exit status 1\)", run.ended.text)
    assert "Starting operation: Switch" not in run.ended.text
    assert "Traceback" not in run.ended.text
    for words in (STOP, *START.values(), f"mv -T {CURRENT}.new"):
        assert run.hosts_told(words) == []


@pytest.mark.parametrize("script", [CLUSTER, ROLLBACK])
def test_a_host_that_is_a_hypervisor_alone_is_left_alone(tmp_path: Path, script: Path) -> None:
    answers = {"uname -s": "Linux", "useradd": "/usr/sbin/useradd", **FAILS}
    workers = [fake("w1", answers=answers, **GOOD)]
    heads = [fake("head", answers=answers, **GOOD, **MODEL)]
    run = deploy(inventory(tmp_path, hypervisors=[fake("virt", **GOOD)], workers=workers, heads=heads), script=script)
    assert "Starting operation" in run.ended.text
    assert "Traceback" not in run.ended.text
    assert_left_alone(run, "virt")


@pytest.mark.parametrize("broken", ["w1", "head"])
def test_a_host_that_does_not_come_up_takes_all_back(tmp_path: Path, small: Path, broken: str) -> None:
    run = deploy(upgrade(tmp_path, broken), script=small)
    assert run.ended.status == 1
    assert "Traceback" not in run.ended.text
    said = [command for host, command in run.commands if host == broken and ">&2; exit 1" in command]
    assert f"@fake/{broken}: it does not answer. Every host is back on the release before, which answers." in said[-1]
    last = {name: command for name, command in run.commands if "systemctl restart" in command}
    assert {name: states(OLDER)[name].release in command for name, command in last.items()} == dict.fromkeys(states(OLDER), True)
    assert not any(remembered(run, name, "json") for name in states(OLDER))


def test_a_run_with_nothing_new_tells_no_host_to_do_anything(tmp_path: Path, small: Path) -> None:
    hosts = {name: fake(name, answers={**runs(state), **FAILS}, **GOOD) for name, state in states(NEWER).items()}
    run = deploy(inventory(tmp_path, workers=[hosts["w1"], hosts["w2"]], heads=[hosts["head"]]), script=small)
    assert run.ended.status == 0, run.ended.text
    told = [command for _, command in run.commands if not is_look(command) and "build the release" not in command]
    assert {command.strip().partition(" ")[0] for command in told} == {"echo"}
    assert all(f"readlink {CURRENT}" in command for _, command in run.commands if "systemctl" in command)


ROLL_BACK = SMALL.replace("cluster.switch(", "cluster.roll_back(")


def roll_back(folder: Path, before: Mapping[str, HostState]) -> Run:
    """The newer commit runs and one takes it back; these hosts remember what ran before."""

    def there(name: str) -> tuple[str, dict[str, Any]]:
        answers = runs(states(NEWER)[name])
        if name in before:
            answers[SEEN] = [*answers[SEEN], f"before {before[name].to_json()}"]
        return fake(name, answers={**answers, **FAILS}, **GOOD)

    script = folder / "roll_back.py"
    script.write_text(ROLL_BACK)
    return deploy(inventory(folder, workers=[there("w1"), there("w2")], heads=[there("head")]), script=script)


def test_rolling_back_brings_every_host_to_what_it_ran_before(tmp_path: Path) -> None:
    run = roll_back(tmp_path, states(OLDER))
    assert run.ended.status == 0, run.ended.text
    started = {name: command for name, command in run.commands if "systemctl restart" in command}
    assert {name: states(OLDER)[name].release in command for name, command in started.items()} == dict.fromkeys(
        states(OLDER), True
    )
    assert positions(run, STOP)[0] < positions(run, START[RPC_SERVER])[0] < positions(run, START[LLAMA_SERVER])[0]
    assert "The endpoint answers again; downtime 3.5 s." in run.ended.text


def with_gpus(state: HostState, gpus: int) -> HostState:
    """The state of a worker that lent as many."""
    return replace(state, units={RPC_SERVER: replace(state.units[RPC_SERVER], gpus=gpus)})


@pytest.mark.parametrize(
    ("lost", "sentence"),
    [
        ({"w2": None}, "@fake/w2: there is no release before this one to go back to; nothing was changed."),
        (
            {"w2": with_gpus(states(OLDER)["w2"], 2)},
            "@fake/w2: its worker lent 2 GPUs before the last switch, and 0 are there now; nothing was changed: go back with"
            " deploys/cluster.py and the older commit.",
        ),
        ({"w2": states("3" * 40)["w2"]}, "inventory: what the hosts would run does not belong together"),
    ],
)
def test_hosts_that_cannot_go_back_together_do_not_go_back_at_all(
    tmp_path: Path, lost: Mapping[str, HostState | None], sentence: str
) -> None:
    before = {name: state for name, state in {**states(OLDER), **lost}.items() if state is not None}
    run = roll_back(tmp_path, before)
    assert run.ended.status != 0
    assert "Traceback" not in run.ended.text
    assert [command for _, command in run.commands if sentence in command]
    for words in (STOP, *START.values()):
        assert run.hosts_told(words) == []


def test_a_host_whose_release_before_is_gone_takes_nobody_down(tmp_path: Path) -> None:
    """Its folder is still there; the image that its manifest names was cleaned up."""

    def there(name: str, image: str = "") -> tuple[str, dict[str, Any]]:
        before = states(OLDER)[name]
        kept = replace(manifest(), release=before.release, commit=before.commit, image=image)
        answers = runs(states(NEWER)[name])
        answers[SEEN] = [*answers[SEEN], f"before {before.to_json()}"]
        releases = {"::gpuquilt release": [f"::gpuquilt release {before.release}", *kept.to_json().splitlines()]}
        return fake(name, answers={**releases, **answers, **FAILS}, **GOOD, **(MODEL if name == "head" else {}))

    workers = [there("w1"), there("w2", f"sha256:{'a' * 64}")]
    run = deploy(inventory(tmp_path, workers=workers, heads=[there("head")]), script=ROLLBACK)
    assert run.ended.status != 0
    refusals = run.ended.text.partition("nothing was changed, because:\n")[2].splitlines()
    said = [line.strip() for line in refusals if "@fake/" in line]
    release = states(OLDER)["w2"].release
    assert said == [
        f"@fake/w2: its release before, {release}, is not there any more (its folder or its image was removed, or Docker does"
        f" not run): start Docker if it should run, or make the inventory what it was then (commit {OLDER[:12]}) and run"
        " deploys/cluster.py, which builds it anew."
    ]
    for words in (STOP, *START.values()):
        assert run.hosts_told(words) == []


# In a terminal, where every question is answered with Enter.


def typed(*arguments: str) -> tuple[int, str]:
    """Type a command in a terminal and press Enter at every prompt."""
    said = StringIO()
    program, *rest = pyinfra_command(*arguments)
    terminal = pexpect.spawn(program, rest, cwd=str(ROOT), encoding="utf-8", timeout=60, dimensions=(50, 300))
    terminal.logfile_read = said
    while terminal.expect(["Press enter to execute", pexpect.EOF]) == 0:
        terminal.sendline("")
    terminal.close()
    status = terminal.exitstatus
    return -1 if status is None else status, COLOUR.sub("", said.getvalue())


def test_enter_at_every_prompt_goes_through_a_good_upgrade(tmp_path: Path, small: Path) -> None:
    status, text = typed(str(upgrade(tmp_path)), str(small))
    assert status == 0, text
    assert "skip this step with -y" in text
    assert "The endpoint answers again" in text


def test_enter_at_every_prompt_does_not_switch_past_a_failed_build(tmp_path: Path, small: Path) -> None:
    status, text = typed("--debug", str(upgrade(tmp_path, w1=NO_COMPILER)), str(small))
    assert status != 0
    assert "Starting operation: Build" in text
    assert "systemctl stop" not in text
    assert "systemctl restart" not in text


def test_enter_at_every_prompt_does_not_go_on_without_a_host_that_is_down(tmp_path: Path) -> None:
    down = ("127.0.0.1", {"ssh_port": 1, **GOOD})
    path = inventory(tmp_path, workers=[down, fake("w2", **GOOD)], heads=[fake("head", **GOOD, **MODEL)])
    status, text = typed(str(path), str(CLUSTER))
    assert status != 0
    assert "127.0.0.1: cannot be reached (why stands above)" in text
    assert "Starting operation" not in text


@pytest.mark.parametrize("yes", [["-y"], []])
def test_a_host_that_is_down_is_named_without_a_terminal_too(tmp_path: Path, yes: list[str]) -> None:
    down = ("127.0.0.1", {"ssh_port": 1, **GOOD})
    run = deploy(inventory(tmp_path, workers=[down, fake("w2", **GOOD)], heads=[fake("head", **GOOD, **MODEL)]), yes=yes)
    assert run.ended.status != 0
    assert "continue?" not in run.ended.text
    assert "127.0.0.1: cannot be reached (why stands above): start it, or take it out of the inventory" in run.ended.text
    assert "Traceback" not in run.ended.text
    assert run.commands == []
