"""Preflight on real machines: what it says, and that it changes nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import Ended, pyinfra
from tests.sandbox.conftest import INVENTORY, NEW, OLD, Machine, Sandbox, inventory_as, person

PREFLIGHT = "deploys/preflight.py"

ITS_OWN = ("/run", "/var/log", "/var/lib/systemd", "/var/lib/apt", "/var/cache/apt", "/var/backups")
"""What a machine changes by itself: sessions, journal, logins, stamps of timers, apt's daily look for updates, dpkg's copies."""

SNAPSHOTS = {
    # A changed content changes at least one of the two times; the second one of a folder changes when overlayfs reads it.
    "files": f"find / -xdev \\( -path {' -o -path '.join(ITS_OWN)} \\) -prune"
    " -o -type d -printf '%p %y %m %u:%g %T@\\n' -o -printf '%p %y %s %m %u:%g %T@ %C@ %l\\n' | sort",
    "temporary files": "ls -AR /tmp /var/tmp /dev/shm",
    "packages": "dpkg-query -W",
    "unit files": "systemctl list-unit-files --plain --no-legend",
    "failed units": "systemctl list-units --failed --plain --no-legend",
    "firewall": "nft list ruleset",
}
"""What preflight must leave as it is → the command that shows it."""


@pytest.fixture(scope="module", autouse=True)
def _at_one_commit(sandbox: Sandbox) -> None:
    sandbox.at(NEW)


def snapshot(machine: Machine) -> dict[str, list[str]]:
    return {what: machine.out(command).splitlines() for what, command in SNAPSHOTS.items()}


def preflight(sandbox: Sandbox, *arguments: str, inventory: str = INVENTORY) -> Ended:
    """Run it as a person or a script would: nothing is asked, so that no `-y` is needed; and nothing is changed by it."""
    services, machines = sandbox.services(), [snapshot(machine) for machine in sandbox.machines]
    ended = pyinfra(inventory, PREFLIGHT, *arguments, timeout=60)
    assert sandbox.services() == services
    for machine, before in zip(sandbox.machines, machines, strict=True):
        for what, after in snapshot(machine).items():
            assert sorted(set(before[what]) ^ set(after)) == [], f"{machine.name}: {what}"
    return ended


def test_a_cluster_that_is_what_it_should_be(sandbox: Sandbox) -> None:
    ended = preflight(sandbox)
    assert ended.status == 0, ended.text
    assert ended.output.count("nothing: ") == len(sandbox.machines), ended.output
    assert all(machine.name in ended.output for machine in sandbox.machines)
    assert NEW in ended.output


def test_an_upgrade_is_announced_and_not_made(sandbox: Sandbox, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    ended = preflight(sandbox, "--data", f"commit={OLD}", "--data", f"plan_json={file}")
    assert ended.status == 0, ended.text
    said = " ".join(ended.output.split())
    assert said.count(f"switch from {NEW[:12]}-") == len(sandbox.machines), ended.output
    assert said.count("restart rpc-server.service") == 2, ended.output
    assert said.count("restart llama-server.service") == 1, ended.output
    plan = json.loads(file.read_text())
    assert plan["commit"] == OLD
    assert sorted(plan["hosts"]) == sorted(machine.name for machine in sandbox.machines)


def test_what_is_refused_stands_after_the_tables(sandbox: Sandbox, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    ended = preflight(sandbox, "--data", "http_port=8081", "--data", "address=192.0.2.1", "--data", f"plan_json={file}")
    assert ended.status == 1
    assert "Traceback" not in ended.text
    tables, _, refused = ended.output.partition("\ncluster\n")
    assert all(machine.name in tables for machine in sandbox.machines)
    assert "address = 192.0.2.1 is not in network" in " ".join(refused.split())
    assert json.loads(file.read_text())["refusals"]


def test_a_user_with_sudo_sees_the_same(sandbox: Sandbox, tmp_path: Path) -> None:
    with person(sandbox.w2, "NOPASSWD: ALL") as user:
        theirs = preflight(sandbox, inventory=inventory_as(tmp_path, "gq-w2", user))
    assert theirs.status == 0, theirs.text
    assert theirs.output == preflight(sandbox).output
