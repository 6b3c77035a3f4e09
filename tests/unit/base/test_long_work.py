"""Work that goes on when the connection dies: the real shell snippets, on a systemd that is played by two scripts."""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from roles.base import operations
from roles.base.operations import _look, _start

UNIT = "gpuquilt-build"

SYSTEMCTL = r"""#!/bin/sh
read -r pid 2>/dev/null <"$UNITS/$UNIT_NAME"
runs() {
    # A process that nobody has waited for yet runs no more.
    case $(sed -n 's/^State:[[:space:]]*//p' "/proc/$pid/status" 2>/dev/null) in ""|Z*) return 1 ;; esac
}
case $1 in
is-active)
    if runs; then state=active; else state=inactive; fi
    [ "$2" = --quiet ] || echo $state
    [ $state = active ] ;;
stop)
    echo stop >>"$UNITS/calls"
    kill -9 "$pid" "-$pid"
    while runs; do sleep 0.05; done ;;
esac
"""
SYSTEMD_RUN = """#!/bin/sh
echo start >>"$UNITS/calls"
while [ "${1#--}" != "$1" ]; do shift; done
setsid "$@" </dev/null >/dev/null 2>&1 &
echo $! >"$UNITS/$UNIT_NAME"
"""


class Machine:
    """A folder that plays a host with one unit."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.work = folder / "work" / UNIT
        programs, self.units = folder / "programs", folder / "units"
        programs.mkdir()
        self.units.mkdir()
        for name, text in (("systemctl", SYSTEMCTL), ("systemd-run", SYSTEMD_RUN)):
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
        self.environment = os.environ | {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "UNITS": str(self.units),
            "UNIT_NAME": UNIT,
        }

    def run(self, command: str) -> str:
        ended = subprocess.run(
            ["sh", "-c", command], capture_output=True, text=True, env=self.environment, timeout=20, check=False
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout.strip()

    def start(self, script: str) -> None:
        self.run(_start(UNIT, script))

    def look(self) -> str:
        return self.run(_look(UNIT))

    def wait(self) -> str:
        """What is seen when the unit runs no more."""
        until = time.monotonic() + 60
        while (seen := self.look()).startswith("running"):
            assert time.monotonic() < until
            time.sleep(0.05)
        return seen

    def kill(self) -> None:
        """As a power cut, or the kernel when memory is short."""
        pid = int((self.units / UNIT).read_text())
        # By itself as well, since it may not have made its group yet.
        subprocess.run(["kill", "-9", "--", str(pid), f"-{pid}"], check=False, stderr=subprocess.DEVNULL)

    @property
    def calls(self) -> list[str]:
        return (self.units / "calls").read_text().split()


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    monkeypatch.setattr(operations, "WORK", str(tmp_path / "work"))
    machine = Machine(tmp_path)
    yield machine
    if (machine.units / UNIT).exists():
        machine.kill()


def wait_for(path: Path) -> None:
    until = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_work_that_ends_well(machine: Machine) -> None:
    machine.start(f"echo 'it works' >{machine.folder}/result\necho said\n")
    assert machine.wait() == "0"
    assert (machine.folder / "result").read_text() == "it works\n"
    assert (machine.work / "log").read_text() == "said\n"


@pytest.mark.parametrize("script", ["exit 7", "set -e\nsh -c 'exit 7'\ntrue", "echo \"a 'b'\" >&2; exit 7"])
def test_work_that_fails_leaves_its_exit_status(machine: Machine, script: str) -> None:
    machine.start(script)
    assert machine.wait() == "7"


def test_what_the_script_says_last_is_shown_while_it_runs(machine: Machine) -> None:
    machine.start(f"printf '[10%%] a.c\\n[ 20%%] b\\\\n.c\\r[30%%] c.c\\n\\n'; touch {machine.folder}/said; sleep 60")
    wait_for(machine.folder / "said")
    assert machine.look() == "running [30%] c.c"


def test_a_backslash_in_the_log_does_not_break_the_line(machine: Machine) -> None:
    machine.start(f"printf '%s\\n' 'sed s/a/\\n/'; touch {machine.folder}/said; sleep 60")
    wait_for(machine.folder / "said")
    assert machine.look() == "running sed s/a/\\n/"


def test_the_same_work_is_not_started_twice(machine: Machine) -> None:
    machine.start("sleep 60")
    machine.start("sleep 60")
    assert machine.calls == ["start"]


def test_work_with_another_script_is_stopped_first(machine: Machine) -> None:
    machine.start(f"until [ -e {machine.folder}/new ]; do sleep 0.05; done; touch {machine.folder}/old")
    machine.start(f"touch {machine.folder}/new")
    assert machine.wait() == "0"
    assert machine.calls == ["start", "stop", "start"]
    time.sleep(0.2)
    assert not (machine.folder / "old").exists()


def test_work_that_was_killed_leaves_no_result_and_is_started_anew(machine: Machine) -> None:
    machine.start("sleep 60")
    machine.kill()
    assert machine.wait() == "gone"
    machine.start("true")
    assert machine.wait() == "0"
    assert machine.calls == ["start", "start"]


def test_the_result_of_earlier_work_is_not_taken_for_that_of_the_new(machine: Machine) -> None:
    machine.start("true")
    assert machine.wait() == "0"
    machine.start("sleep 60")
    assert machine.look().startswith("running")
    machine.kill()
    assert machine.wait() == "gone"


def test_where_nothing_was_ever_started_there_is_no_result(machine: Machine) -> None:
    assert machine.look() == "gone"


def test_a_script_with_quotes_and_specials_arrives_as_it_is(machine: Machine) -> None:
    script = "echo \"it's $HOME\" '%s %n \\n' >/dev/null\n"
    machine.start(script)
    assert machine.wait() == "0"
    assert (machine.work / "script").read_text() == script
