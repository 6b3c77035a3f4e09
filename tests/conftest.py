"""What all tests share."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SECONDS_TO_DIE = 10


OF_MAKE = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "MAKEOVERRIDES")
"""By these a make that a test starts would take itself for a part of the one that runs the tests."""


@dataclass(frozen=True)
class Ended:
    """A command that has ended."""

    status: int
    output: str
    errors: str

    @property
    def text(self) -> str:
        """Everything that a user would have read."""
        return self.output + self.errors


def run(*command: str, timeout: float = 120, cwd: Path = ROOT, **environment: str) -> Ended:
    """Run a command without a terminal, as a script would, and keep what it says.

    :param timeout: seconds
    :raises subprocess.TimeoutExpired: it took longer; it was killed with all that it started, and what it said is in there
    """
    process = subprocess.Popen(
        command,
        cwd=cwd,
        env={name: value for name, value in os.environ.items() if name not in OF_MAKE} | environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A group of its own, to be killed as a whole: what the command has started holds the pipes as well.
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(timeout=timeout)
    except BaseException as error:
        said = _kill(process)
        if isinstance(error, subprocess.TimeoutExpired):
            error.output, error.stderr = said
            error.add_note(f"It said until then:\n{''.join(said)}")
        raise
    return Ended(process.returncode, output, errors)


def _kill(process: subprocess.Popen[str]) -> tuple[str, str]:
    """End a command with its process group; what it has said, output and errors."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    try:
        return process.communicate(timeout=SECONDS_TO_DIE)
    except subprocess.TimeoutExpired as error:
        # A daemon that has left the group holds the pipes: what came through them until now has to do.
        return _text(error.output), _text(error.stderr)


def _text(part: bytes | str | None) -> str:
    return part.decode(errors="replace") if isinstance(part, bytes) else part or ""


def pyinfra_command(*arguments: str) -> list[str]:
    """pyinfra of the environment that the tests run in."""
    return [sys.executable, "-m", "pyinfra", *arguments]


def pyinfra(*arguments: str, timeout: float = 1200, cwd: Path = ROOT) -> Ended:
    """Run pyinfra as a user's script would."""
    return run(*pyinfra_command(*arguments), timeout=timeout, cwd=cwd)
