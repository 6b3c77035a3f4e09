"""deploys/hypervisors.py as a user types it: the hypervisors alone, whatever state the other hosts are in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from roles.base.connection import is_for_hypervisors
from tests.conftest import ROOT
from tests.unit.fakes import CLUSTER, GOOD, MODEL, deploy, fake, inventory
from tests.unit.test_deploys import typed
from tests.unit.test_reboots import OWN_BOOT, hypervisor, laptop

HYPERVISORS = ROOT / "deploys" / "hypervisors.py"
PREPARE = ROOT / "deploys" / "prepare.py"
OFF: tuple[str, dict[str, Any]] = ("127.0.0.1", {"ssh_port": 1, **GOOD})
"""Nobody listens there."""
UNFINISHED = MODEL | {"model_sha256": "PUT THE SHA-256 OF THE MODEL HERE"}


def test_other_hosts_may_be_off_and_their_settings_unfinished(tmp_path: Path) -> None:
    heads = [fake("head", {"architecture": "aarch64"}, **GOOD, **UNFINISHED, endpoints=["w9:50052"])]
    data = {"gpus": ["no such chip"], "colour": "red"}
    workers = [OFF, fake("w1", **GOOD, **data)]
    path = inventory(tmp_path, hypervisors=[hypervisor(owed=False, **UNFINISHED)], workers=workers, heads=heads)
    run = deploy(path, script=HYPERVISORS)
    assert run.ended.status == 0, run.ended.text
    assert "127.0.0.1: cannot be reached (why stands above), which does not matter to this deploy." in run.ended.text
    assert {host for host, _ in run.commands} == {"virt"}


def test_there_need_be_nothing_but_hypervisors(tmp_path: Path) -> None:
    run = deploy(inventory(tmp_path, hypervisors=[hypervisor(owed=False)]), script=HYPERVISORS)
    assert run.ended.status == 0, run.ended.text


def test_a_hypervisor_that_is_a_worker_too_is_treated_as_a_hypervisor_alone(tmp_path: Path) -> None:
    """It has no address in the cluster network, and no model."""
    box = hypervisor(owed=False, **UNFINISHED, network="198.51.100.0/24")
    run = deploy(inventory(tmp_path, hypervisors=[box], workers=[box], heads=[box]), script=HYPERVISORS)
    assert run.ended.status == 0, run.ended.text


@pytest.mark.parametrize("yes", [["-y"], []])
def test_a_hypervisor_that_cannot_be_reached_stops_the_run(tmp_path: Path, yes: list[str]) -> None:
    path = inventory(tmp_path, hypervisors=[OFF, hypervisor()], workers=[fake("w1", **GOOD)])
    status, text = typed(*yes, "--debug", str(path), str(HYPERVISORS))
    assert status == 1
    assert "127.0.0.1: cannot be reached (why stands above): start it, or take it out of the inventory; no host was chang" in text
    assert "Starting operation" not in text
    assert "systemctl reboot" not in text


def test_without_a_hypervisor_there_is_nothing_to_do(tmp_path: Path) -> None:
    run = deploy(inventory(tmp_path, workers=[fake("w1", **GOOD)], heads=[fake("head", **GOOD, **MODEL)]), script=HYPERVISORS)
    assert run.ended.status == 1
    assert run.commands == []
    assert (
        "inventory: the group `hypervisors` is empty: put the hosts there whose GPUs are to belong to virtual machines;"
        " without one there is nothing to do here." in run.ended.text
    )


def test_what_is_wrong_with_a_hypervisor_is_refused(tmp_path: Path) -> None:
    virt = hypervisor(passthrough=["0e"], runs_on="@fake/w1")
    run = deploy(inventory(tmp_path, hypervisors=[virt], workers=[fake("w1", **GOOD, colour="red")]), script=HYPERVISORS)
    assert run.ended.status == 1
    assert "@fake/virt: passthrough = '0e' is not valid" in run.ended.text
    assert "colour" not in run.ended.text.partition("nothing was changed")[2]


def test_a_hypervisor_that_this_computer_is_a_guest_of_is_not_rebooted(tmp_path: Path) -> None:
    """The guest is asked for its boot id, and for nothing else."""
    guest = laptop("w1", boot=OWN_BOOT, runs_on="@fake/virt")
    run = deploy(inventory(tmp_path, hypervisors=[hypervisor()], workers=[guest]), script=HYPERVISORS)
    assert run.ended.status == 1
    assert "the computer that this runs on would go down with it: reboot it yourself" in run.ended.text
    assert run.hosts_told("systemctl reboot") == []
    assert len([command for host, command in run.commands if host == "w1"]) == 1


@pytest.mark.parametrize("script", [CLUSTER, PREPARE])
def test_other_deploys_do_without_nobody(tmp_path: Path, script: Path) -> None:
    run = deploy(inventory(tmp_path, hypervisors=[hypervisor()], workers=[OFF], heads=[fake("head", **GOOD)]), script=script)
    assert run.ended.status == 1
    assert "127.0.0.1: cannot be reached (why stands above): start it" in run.ended.text
    assert run.commands == []


@pytest.mark.parametrize("scripts", [[HYPERVISORS, PREPARE], [PREPARE, HYPERVISORS]])
def test_it_is_not_run_together_with_another_deploy(tmp_path: Path, scripts: list[Path]) -> None:
    """The other one would take the hypervisors for all that there is."""
    hosts = {"workers": [laptop("w1", owed=False)], "heads": [fake("head", **GOOD, **MODEL)]}
    path = inventory(tmp_path, hypervisors=[hypervisor(owed=False)], **hosts)
    status, text = typed("-y", str(path), *map(str, scripts))
    assert status == 1
    assert "give pyinfra one at a time; nothing was changed." in " ".join(text.split())
    assert "Starting operation" not in text


@pytest.mark.parametrize(
    ("arguments", "alone"),
    [
        (["-y", "inventories/lab.py", "deploys/hypervisors.py"], True),
        (["virt.home", str(HYPERVISORS), "--data", "reboot=when-owed"], True),
        (["inventories/lab.py", "deploys/cluster.py"], False),
        (["inventories/lab.py", "deploys/hypervisors.py", "deploys/cluster.py"], False),
        (["inventories/lab.py", "deploys/cluster.py", "deploys/hypervisors.py"], False),
        (["inventories/lab.py", "elsewhere/hypervisors.py"], False),
        ([], False),
    ],
)
def test_which_deploy_was_asked_for(arguments: list[str], alone: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert is_for_hypervisors(arguments) is alone
