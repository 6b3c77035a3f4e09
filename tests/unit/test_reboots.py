"""Reboots in the middle of a run, on fake hosts that reboot: who is rebooted, in which order, and what stops it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.unit.fakes import GOOD, MODEL, Run, boots_with, deploy, fake, inventory
from tests.unit.labs import recorded
from tests.unit.labs.test_labs import MARKS
from tests.unit.test_deploys import FAILS, typed

DEPLOY = """
import tests.unit.rebooting
from pyinfra.operations import server
from roles import cluster, model
from roles.cluster.look import look

look([model.Settings])
server.shell(name="Prepare", commands=["prepare this host"])
cluster.reboot()
server.shell(name="Go on", commands=["go on with this host"])
"""
OWN_BOOT = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
REBOOTS = "systemctl reboot"
BOUND = {"0e:00.0": "nouveau holds 0000:0e:00.0 and nouveau holds 0000:0e:00.1, which are to be bound to vfio-pci"}
MODULE = "NVIDIA driver 610.43.01 (open module) is loaded and 610.43.02 (open module) is installed"


def said_by(host: str, *exchange: tuple[str, str]) -> dict[str, list[str]]:
    """What was recorded of a host of the reference lab, but of the machine itself.

    :param exchange: words, and what is said in their place
    """
    found = {}
    for name, mark in MARKS.items():
        if name != "machine":
            text = "\n".join(recorded("reference", host)[name])
            for old, new in exchange:
                text = text.replace(old, new)
            found[mark] = text.splitlines()
    return found


BOOT = boots_with("0000:0e:00.0/10de:1b06", "0000:0e:00.1/10de:10ef")
HYPERVISOR = {True: said_by("virtbase", ("vfio-pci", "nouveau")) | BOOT, False: said_by("virtbase") | BOOT}
LAPTOP = {
    True: said_by("laptop", ("x86_64  610.43.02", "x86_64  610.43.01"), ("loaded 610.43.02", "loaded 610.43.01")),
    False: said_by("laptop"),
}
"""Whether a reboot is owed → what they answer."""


def rebooting(name: str, answers: Mapping[str, Any], boot: str = "BOOT", **data: Any) -> tuple[str, dict[str, Any]]:
    """:param answers: those to a part of a command that others have a part of come first"""
    name, given = fake(name, {"boot_id": boot}, {**answers, **FAILS}, **{**GOOD, **data})
    return name, {**given, "fake_responses": {**answers, **given["fake_responses"]}}


def hypervisor(owed: bool = True, **data: Any) -> tuple[str, dict[str, Any]]:
    own = {"passthrough": ["0e:00.0"], "reboot": "when-owed", "_after": HYPERVISOR[False]}
    return rebooting("virt", HYPERVISOR[owed], **own | data)


def laptop(name: str, owed: bool = True, answers: Mapping[str, Any] = {}, **data: Any) -> tuple[str, dict[str, Any]]:
    own = {"reboot": "when-owed", "_after": LAPTOP[False]}
    return rebooting(name, {**answers, **LAPTOP[owed]}, **own | data)


def head() -> tuple[str, dict[str, Any]]:
    return rebooting("head", {}, **MODEL)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "reboots.py"
    path.write_text(DEPLOY)
    return path


def assert_stopped(run: Run, *sentences: str, rebooted: list[str]) -> None:
    """The run has ended with these sentences after these reboots, and went on with no host."""
    assert run.ended.status == 1, run.ended.text
    for sentence in sentences:
        assert sentence in run.ended.text
    assert "Traceback" not in run.ended.text
    assert run.hosts_told(REBOOTS) == rebooted
    assert run.hosts_told("go on with") == []


def test_never_lists_all_that_owe_a_reboot_and_stops(tmp_path: Path, script: Path) -> None:
    workers = [laptop("w1", reboot="never"), laptop("w2", owed=False, reboot="never")]
    run = deploy(inventory(tmp_path, workers=workers, heads=[head()], hypervisors=[hypervisor(reboot="never")]), script=script)
    sentence = (
        "reboots are owed, and this run cannot go on before them: "
        f"@fake/w1 ({MODULE}); @fake/virt ({BOUND['0e:00.0']}): "
        'reboot them, or set `reboot = "when-owed"`, then run again.'
    )
    assert_stopped(run, sentence, rebooted=[])
    assert len([command for _, command in run.commands if "reboots are owed" in command]) == 1
    assert sorted(run.hosts_told("prepare this host")) == ["head", "virt", "w1", "w2"]


def test_one_that_may_not_be_rebooted_keeps_those_that_may_from_it(tmp_path: Path, script: Path) -> None:
    run = deploy(inventory(tmp_path, workers=[laptop("w1"), laptop("w2", reboot="never")], heads=[head()]), script=script)
    assert_stopped(run, f"before them: @fake/w2 ({MODULE}): reboot them", rebooted=[])


def test_hypervisors_are_rebooted_first_then_the_others_and_the_run_goes_on(tmp_path: Path, script: Path) -> None:
    """w1 owes a reboot as well, but has had one with its hypervisor."""
    workers = [laptop("w1", runs_on="@fake/virt"), laptop("w2")]
    path = inventory(tmp_path, workers=workers, heads=[head()], hypervisors=[hypervisor()])
    run = deploy(path, script=script)
    assert run.ended.status == 0, run.ended.text
    assert "Traceback" not in run.ended.text
    assert run.hosts_told(REBOOTS) == ["virt", "w2"]
    assert sorted(run.hosts_told("go on with")) == ["head", "virt", "w1", "w2"]
    assert f"reboots: {BOUND['0e:00.0']}; until it is back, the endpoint does not have @fake/w1" in run.ended.text
    assert f"reboots: {MODULE}; until it is back, the endpoint does not have @fake/w2" in run.ended.text


def test_a_guest_that_its_hypervisor_has_woken_again_is_rebooted_itself(tmp_path: Path, script: Path) -> None:
    workers = [laptop("w1", runs_on="@fake/virt", _wakes=True, reboot_timeout=600)]
    run = deploy(inventory(tmp_path, workers=workers, heads=[head()], hypervisors=[hypervisor()]), script=script)
    # Not twice: it goes on where it was whenever it is told to reboot, so that no other boot id ever shows.
    assert_stopped(run, "@fake/w1: it was told to reboot and had not done so 600 s later", rebooted=["virt", "w1"])


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"_stays_off": True, "reboot_timeout": 60},
            "it did not come back within 60 s after it was told to reboot: look at its console, start it, then run again; where"
            " it needs longer, set `reboot_timeout`.",
        ),
        (
            {"_after": {}},
            f"it was rebooted, and that has not helped ({MODULE}): see `journalctl -b` there for what failed, then run again.",
        ),
    ],
)
def test_nobody_else_is_rebooted_after_the_first_that_fails(
    tmp_path: Path, script: Path, changes: dict[str, Any], sentence: str
) -> None:
    """Which one comes first is pyinfra's choice."""
    run = deploy(inventory(tmp_path, workers=[laptop("w1", **changes), laptop("w2", **changes)], heads=[head()]), script=script)
    (first,) = run.hosts_told(REBOOTS)
    (other,) = {"w1", "w2"} - {first}
    assert_stopped(run, f"@fake/{first}: {sentence} @fake/{other}: not rebooted, though owed.", rebooted=[first])


def test_a_guest_that_does_not_come_back_with_its_hypervisor_stops_the_run(tmp_path: Path, script: Path) -> None:
    workers = [laptop("w1", owed=False, runs_on="@fake/virt", _stays_off=True, reboot_timeout=60), laptop("w2")]
    run = deploy(inventory(tmp_path, workers=workers, heads=[head()], hypervisors=[hypervisor()]), script=script)
    sentence = (
        "@fake/virt: it was rebooted, and @fake/w1 did not come back with it: start what is off, let it start with its"
        " hypervisor from now on (autostart), then run again. @fake/w2: not rebooted, though owed."
    )
    assert_stopped(run, sentence, rebooted=["virt"])


def test_a_reboot_that_systemd_refuses_is_not_waited_for(tmp_path: Path, script: Path) -> None:
    refused = {"is-failed": ["boot_id BOOT", "state running", "refused Operation inhibited by apt"]}
    run = deploy(inventory(tmp_path, workers=[laptop("w1", answers=refused, _wakes=True)], heads=[head()]), script=script)
    assert_stopped(run, "@fake/w1: systemd did not reboot it (Operation inhibited by apt): see to it,", rebooted=["w1"])


def test_nobody_is_rebooted_while_a_package_manager_is_at_work(tmp_path: Path, script: Path) -> None:
    held = {"/proc/locks": ["held by unattended-upgr (812)"]}
    # What the look at a machine asks of the locks is asked of nobody here.
    answers = {"/proc/sys/kernel/random/boot_id": laptop("w1")[1]["fake_responses"]["/proc/sys/kernel/random/boot_id"], **held}
    run = deploy(inventory(tmp_path, workers=[laptop("w1", answers=answers)], heads=[head()]), script=script)
    sentence = (
        "@fake/w1: it was not rebooted, because dpkg's lock is held by unattended-upgr (812): let that end, then run again."
    )
    assert_stopped(run, sentence, rebooted=[])
    assert re.search(r"which is waited for before the reboot: \d+ s of at most 600 s", run.ended.text)


def test_a_boot_that_does_not_come_to_its_end_is_waited_for_and_then_taken_as_it_is(tmp_path: Path, script: Path) -> None:
    starting = {"is-failed": ["boot_id BOOT", "state starting"], **LAPTOP[False]}
    workers = [laptop("w1", _after=starting, reboot_timeout=600)]
    run = deploy(inventory(tmp_path, workers=workers, heads=[head()]), script=script)
    assert run.ended.status == 0, run.ended.text
    assert "reboots (starting): " in run.ended.text
    assert sorted(run.hosts_told("go on with")) == ["head", "w1"]


ITSELF = [
    ({"workers": [laptop("w1", boot=OWN_BOOT)]}, "w1"),
    ({"workers": [laptop("w1", owed=False, boot=OWN_BOOT, runs_on="@fake/virt")], "hypervisors": [hypervisor()]}, "virt"),
]


@pytest.mark.parametrize(("hosts", "owing"), ITSELF)
def test_the_computer_that_this_runs_on_is_never_rebooted(
    tmp_path: Path, script: Path, hosts: dict[str, Any], owing: str
) -> None:
    hosts = {**hosts, "workers": [*hosts["workers"], laptop("w2")]}
    run = deploy(inventory(tmp_path, **hosts, heads=[head()]), script=script)
    assert_stopped(run, f"@fake/{owing}: a reboot is owed (", "the computer that this runs on would go down with it", rebooted=[])


def test_a_reboot_that_could_not_be_proved_is_not_done(tmp_path: Path, script: Path) -> None:
    run = deploy(inventory(tmp_path, workers=[laptop("w1", boot="")], heads=[head()]), script=script)
    assert_stopped(run, "and it has no boot id, by which a reboot could be proved: reboot it yourself", rebooted=[])


def test_where_none_is_owed_nobody_is_told_anything(tmp_path: Path, script: Path) -> None:
    workers = [laptop("w1", owed=False), laptop("w2", owed=False)]
    run = deploy(inventory(tmp_path, workers=workers, heads=[head()], hypervisors=[hypervisor(owed=False)]), script=script)
    assert run.ended.status == 0, run.ended.text
    assert run.hosts_told("systemd-run") == []


def test_enter_at_every_prompt_does_not_go_on_after_a_failed_reboot(tmp_path: Path, script: Path) -> None:
    workers = [laptop("w1", _stays_off=True, reboot_timeout=60), laptop("w2")]
    status, text = typed("--debug", str(inventory(tmp_path, workers=workers, heads=[head()])), str(script))
    assert status != 0
    assert "it did not come back within 60 s" in text
    assert "go on with this host" not in text.partition("Beginning operation run")[2]


@pytest.mark.parametrize("name", ["cluster", "prepare", "hypervisors"])
def test_the_literal_deploys_stop_at_a_reboot_that_is_owed(tmp_path: Path, name: str) -> None:
    answers = {"active=$(systemctl is-active": "0", "uname -s": "Linux", "useradd": "/usr/sbin/useradd"}
    workers = [rebooting("w1", answers)]
    heads = [rebooting("head", answers, **MODEL)]
    path = inventory(tmp_path, workers=workers, heads=heads, hypervisors=[hypervisor(reboot="never")])
    run = deploy(path, script=ROOT / "deploys" / f"{name}.py")
    assert_stopped(run, f"before them: @fake/virt ({BOUND['0e:00.0']}): reboot them, or set", rebooted=[])
    assert "Starting operation: llama.cpp" not in run.ended.text
    assert ("Starting operation: deploys/prepare.py | Base" in run.ended.text) == (name == "cluster")
