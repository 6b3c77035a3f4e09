"""The cluster on three real machines, from the first answer to upgrades, rollbacks and everything that breaks them.

The tests follow one another: the order is that of a user's weeks with the cluster.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pexpect
import pytest

from tests.conftest import pyinfra_command
from tests.sandbox.conftest import INVENTORY, NEW, OLD, ROOT, Machine, Sandbox, Watch, changes, downtime, kill

MARGIN = 3
"""Seconds by which the downtime that a run says may be less than what a watcher sees; how long it is, test_speed.py measures."""
BUILD_UNIT = f"gpuquilt-build-{OLD[:12]}-*"


@pytest.fixture(scope="module", autouse=True)
def cluster_runs_new(sandbox: Sandbox) -> Iterator[None]:
    """Both releases are built along the way; the tests leave the cluster as `make sandbox` made it."""
    sandbox.at(NEW)
    yield
    sandbox.at(NEW)


def test_make_sandbox_ends_with_an_answer_through_both_workers(sandbox: Sandbox) -> None:
    assert "Paris" in sandbox.made.output
    assert "tokens" in sandbox.made.output
    assert "make sandbox-down" in sandbox.made.output
    assert {f"{worker.address}:50052" for worker in sandbox.workers} <= sandbox.peers()


def test_a_second_run_changes_nothing(sandbox: Sandbox) -> None:
    before = sandbox.services()
    ended = sandbox.deploy("--json")
    assert ended.status == 0, ended.text
    assert changes(ended) == {}
    assert sandbox.services() == before


@contextmanager
def held_build(machine: Machine) -> Iterator[None]:
    """On this machine a build stands still at its end while the wrapper is there: a warm compiler cache makes it short."""
    wrapper = r"""#!/bin/sh
touch /run/held
while [ -e "$0" ]; do sleep 0.1; done
exec /usr/bin/zstd "$@"
"""
    machine.out(f"cat >/usr/local/bin/zstd <<'E'\n{wrapper}E\nchmod +x /usr/local/bin/zstd")
    try:
        yield
    finally:
        machine.out("rm -f /usr/local/bin/zstd /run/held")


def test_a_run_killed_in_the_middle_of_the_build_is_finished_by_the_next(sandbox: Sandbox) -> None:
    sandbox.head.out(f"rm -rf /opt/llama.cpp/releases/{OLD[:12]}-* /var/cache/gpuquilt/build/{OLD[:12]}-*")
    began = sandbox.head.out("date +%s")
    command = pyinfra_command("-y", INVENTORY, "deploys/cluster.py", "--data", f"commit={OLD}")
    with held_build(sandbox.head), Watch(sandbox, pause=2) as watch:
        process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            while sandbox.head.ssh("test -e /run/held").status != 0:
                assert process.poll() is None, "the run ended before its build was seen"
                time.sleep(0.5)
        finally:
            kill(process)
        # It goes on without its run: the next run follows it, and starts no second one.
        assert sandbox.head.out(f"systemctl is-active '{BUILD_UNIT}'") == "active"
        assert sandbox.commits() == {NEW[:12]}
        with pexpect.spawn(command[0], command[1:], cwd=str(ROOT), encoding="utf-8", timeout=120) as terminal:
            terminal.expect_exact(f"llama.cpp {OLD[:12]}: packing")
            sandbox.head.out("rm /usr/local/bin/zstd")
            terminal.expect(pexpect.EOF, timeout=2400)
    assert terminal.exitstatus == 0, terminal.before
    starts = f"journalctl _PID=1 --since=@{began} --output=cat | grep -c '^Started gpuquilt-build-{OLD[:12]}'"
    assert sandbox.head.out(starts) == "1"
    assert sandbox.commits() == {OLD[:12]}
    assert len(watch.builds) == 2
    assert NEW[:7] in watch.builds[0]
    assert OLD[:7] in watch.builds[1]


def test_the_archive_of_one_build_serves_both_workers(sandbox: Sandbox) -> None:
    manifests = [machine.out(f"cat /opt/llama.cpp/releases/{OLD[:12]}-*/manifest.json") for machine in (sandbox.w1, sandbox.w2)]
    assert manifests[0] == manifests[1]
    assert sandbox.w2.ssh("ls /var/cache/gpuquilt/build").output == ""


def test_an_upgrade_lets_the_old_release_serve_meanwhile(sandbox: Sandbox) -> None:
    """From the older commit to the newer one, which the inventory names."""
    sandbox.at(OLD)
    with Watch(sandbox) as watch:
        ended = sandbox.deploy()
    assert ended.status == 0, ended.text
    assert sandbox.commits() == {NEW[:12]}
    assert [OLD[:7] in watch.builds[0], NEW[:7] in watch.builds[-1], len(watch.builds)] == [True, True, 2]
    assert watch.downtime <= downtime(ended.text) + MARGIN


def test_rollback_goes_to_the_release_before_and_back(sandbox: Sandbox) -> None:
    for commit in (OLD, NEW):
        with Watch(sandbox) as watch:
            ended = sandbox.deploy(deploy="deploys/rollback.py")
        assert ended.status == 0, ended.text
        assert sandbox.commits() == {commit[:12]}
        assert watch.downtime <= downtime(ended.text) + MARGIN


def test_two_releases_are_kept(sandbox: Sandbox) -> None:
    for machine in sandbox.machines:
        names = machine.out("ls /opt/llama.cpp/releases").split()
        assert sorted(name.partition("-")[0] for name in names) == sorted([NEW[:12], OLD[:12]])


def test_a_switch_whose_head_does_not_answer_goes_back(sandbox: Sandbox) -> None:
    """The new head wants an API key that nobody has: it runs, it is healthy, and it answers nobody."""
    sandbox.at(OLD)
    ended = sandbox.deploy("--data", f"commit={NEW}", "--data", 'llama_server_environment={"LLAMA_API_KEY": "nobody has it"}')
    assert ended.status != 0
    assert "gq-head" in ended.text
    assert "Every host is back on the release before, which answers." in ended.text
    assert "Traceback" not in ended.text
    assert sandbox.commits() == {OLD[:12]}
    assert "Paris" in sandbox.ask()
    # Without the mistake, the same command goes through.
    sandbox.at(NEW)


@contextmanager
def hanging_restart(machine: Machine) -> Iterator[None]:
    """On this machine `systemctl restart` never comes back: what lies between switch and restart is held open."""
    wrapper = r"""#!/bin/sh
case "$1" in restart) touch /run/hangs; exec sleep 300 ;; esac
exec /usr/bin/systemctl "$@"
"""
    machine.out(f"cat >/usr/local/bin/systemctl <<'E'\n{wrapper}E\nchmod +x /usr/local/bin/systemctl")
    try:
        yield
    finally:
        machine.out("rm -f /usr/local/bin/systemctl /run/hangs; pkill -x sleep; true")


def test_a_run_killed_between_switch_and_restart_is_finished_by_the_next(sandbox: Sandbox) -> None:
    sandbox.at(NEW)
    with hanging_restart(sandbox.w1):
        command = pyinfra_command("-y", INVENTORY, "deploys/cluster.py", "--data", f"commit={OLD}")
        process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            for _ in range(60):
                if sandbox.w1.ssh("test -e /run/hangs").status == 0:
                    break
                time.sleep(0.5)
        finally:
            kill(process)
        assert OLD[:12] in sandbox.w1.out("readlink /opt/llama.cpp/current")
        # What runs is stopped by its own unit, before that is replaced.
        assert sandbox.w1.shows("rpc-server", "ActiveState") == {"ActiveState": "inactive"}
    sandbox.at(OLD)
    assert "Paris" in sandbox.ask()
    sandbox.at(NEW)


def typed(*arguments: str) -> tuple[int, str]:
    """The literal command in a terminal, with Enter pressed at every prompt."""
    command = pyinfra_command(*arguments)
    terminal = pexpect.spawn(command[0], command[1:], cwd=str(ROOT), encoding="utf-8", timeout=300)
    text = ""
    while terminal.expect(["Press enter", pexpect.EOF]) == 0:
        text += terminal.before
        terminal.sendline("")
    text += terminal.before
    terminal.close()
    return terminal.exitstatus if terminal.exitstatus is not None else -1, text


def test_enter_at_every_prompt_switches_nothing_when_the_gate_fails(sandbox: Sandbox) -> None:
    """The release of one worker is gone, and what comes back misses a library."""
    before = sandbox.services()
    sandbox.w2.out(f"rm -r /opt/llama.cpp/releases/{OLD[:12]}-*")
    sandbox.w2.out("printf '#!/bin/sh\\necho libgomp.so.1 =\\\\> not found\\n' >/usr/local/bin/ldd; chmod +x /usr/local/bin/ldd")
    try:
        status, text = typed(INVENTORY, "deploys/cluster.py", "--data", f"commit={OLD}")
    finally:
        sandbox.w2.out("rm /usr/local/bin/ldd")
    assert status != 0
    assert "libgomp.so.1" in text
    assert "gq-w2" in text
    assert sandbox.services() == before
    assert sandbox.commits() == {NEW[:12]}


@contextmanager
def cable_out(machine: Machine) -> Iterator[None]:
    """The machine is down for everybody else."""
    subprocess.run(["ip", "link", "set", f"vb-{machine.name}", "down"], check=True)
    try:
        yield
    finally:
        subprocess.run(["ip", "link", "set", f"vb-{machine.name}", "up"], check=True)


def test_enter_at_every_prompt_switches_nothing_when_a_host_is_down(sandbox: Sandbox) -> None:
    before = sandbox.services()
    with cable_out(sandbox.w2):
        status, text = typed(INVENTORY, "deploys/cluster.py", "--data", f"commit={OLD}")
        assert status != 0
        assert "gq-w2: cannot be reached" in text
        ended = sandbox.deploy("--data", f"commit={OLD}")
        assert ended.status != 0
        assert "gq-w2: cannot be reached" in ended.text
        assert "Traceback" not in ended.text
    assert sandbox.services() == before


def test_the_terminal_shows_what_would_change_and_changes_it_after_enter(sandbox: Sandbox) -> None:
    before = sandbox.services()
    status, text = typed(INVENTORY, "deploys/cluster.py")
    assert status == 0, text
    assert sandbox.services() == before
