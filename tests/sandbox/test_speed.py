"""Benchmarks on the three machines: each prints its figures, and compares them with what was promised for 2 idle cores."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import pytest

from tests.conftest import pyinfra
from tests.sandbox.conftest import INVENTORY, NEW, OLD, Sandbox, Watch, downtime
from tests.sandbox.verification import Verification

pytestmark = pytest.mark.long

RUNS = 5


def seconds_of(work: Callable[[], object]) -> float:
    started = time.monotonic()
    work()
    return time.monotonic() - started


def figures(what: str, seconds: list[float]) -> str:
    return f"\n{what}: {min(seconds):.1f} to {max(seconds):.1f} s, median {median(seconds):.1f} s, of {len(seconds)} runs"


def test_a_run_that_changes_nothing_takes_at_most_10_seconds(sandbox: Sandbox, capsys: pytest.CaptureFixture[str]) -> None:
    sandbox.at(NEW)
    seconds = [seconds_of(sandbox.deploy) for _ in range(RUNS)]
    with capsys.disabled():
        print(figures("cluster.py, nothing to do", seconds))
    assert median(seconds) <= 10


def test_the_endpoint_is_down_for_at_most_10_seconds(sandbox: Sandbox, capsys: pytest.CaptureFixture[str]) -> None:
    """Upgrades and rollbacks in turn, as a run says it and as a watcher sees it."""
    sandbox.at(OLD)
    upgrade, downgrade = (("deploys/cluster.py", "--data", f"commit={commit}") for commit in (NEW, OLD))
    back = ("deploys/rollback.py",)
    said, seen = [], []
    for deploy, *arguments in (upgrade, back, back, downgrade, upgrade):
        with Watch(sandbox) as watch:
            ended = sandbox.deploy(*arguments, deploy=deploy)
        assert ended.status == 0, ended.text
        said.append(downtime(ended.text))
        seen.append(watch.downtime)
    with capsys.disabled():
        print(figures("downtime, said", said), figures("downtime, seen", seen))
    assert max(said + seen) <= 10


def test_preflight_takes_at_most_3_seconds_a_host(sandbox: Sandbox, capsys: pytest.CaptureFixture[str]) -> None:
    sandbox.at(NEW)
    seconds = [seconds_of(lambda: pyinfra(INVENTORY, "deploys/preflight.py", timeout=60)) for _ in range(RUNS)]
    with capsys.disabled():
        print(figures(f"preflight of {len(sandbox.machines)} hosts, pyinfra's start included", seconds))
    assert median(seconds) <= 3 * len(sandbox.machines)


def test_verification_takes_at_most_30_seconds(sandbox: Sandbox, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sandbox.at(NEW)
    seconds = [seconds_of(Verification(INVENTORY, tmp_path / "report.xml")) for _ in range(RUNS)]
    with capsys.disabled():
        print(figures("verification", seconds))
    assert median(seconds) <= 30
