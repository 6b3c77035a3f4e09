"""What all tests share."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


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
    """Run a command without a terminal, as a script would, and keep what it says."""
    ended = subprocess.run(
        command,
        cwd=cwd,
        env=os.environ | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    return Ended(ended.returncode, ended.stdout, ended.stderr)


def pyinfra_command(*arguments: str) -> list[str]:
    """pyinfra of the environment that the tests run in."""
    return [sys.executable, "-m", "pyinfra", *arguments]


def pyinfra(*arguments: str, timeout: float = 1200, cwd: Path = ROOT) -> Ended:
    """Run pyinfra as a user's script would."""
    return run(*pyinfra_command(*arguments), timeout=timeout, cwd=cwd)
