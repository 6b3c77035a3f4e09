"""How the tests run commands: one that hangs ends with all that it started."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from tests import conftest
from tests.conftest import run


def hang(script: str, timeout: float = 4) -> tuple[subprocess.TimeoutExpired, float]:
    """A shell script that takes too long, and after how many seconds it was given up."""
    started = time.monotonic()
    with pytest.raises(subprocess.TimeoutExpired) as caught:
        run("sh", "-c", script, timeout=timeout)
    return caught.value, time.monotonic() - started


def test_what_a_command_started_ends_with_it(tmp_path: Path) -> None:
    """It holds the pipes: whoever waited for their end would wait as long as it lives."""
    error, seconds = hang(f"echo said; echo complained >&2; sleep 30 & echo $! >{tmp_path}/pid; wait")
    assert seconds < 10
    assert (error.output, error.stderr) == ("said\n", "complained\n")
    assert "It said until then:\nsaid\ncomplained\n" in error.__notes__
    pid = int((tmp_path / "pid").read_text())
    # A signal that was sent need not have arrived yet.
    deadline = time.monotonic() + 5
    while is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not is_alive(pid)


def test_a_daemon_that_left_the_group_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conftest, "SECONDS_TO_DIE", 1)
    error, seconds = hang(f"echo said; setsid sh -c 'echo $$ >{tmp_path}/pid; exec sleep 20' & wait")
    os.kill(int((tmp_path / "pid").read_text()), 9)
    assert seconds < 10
    assert error.output == "said\n"


def is_alive(pid: int) -> bool:
    """Not gone, and not merely waiting for somebody to ask how it ended."""
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
