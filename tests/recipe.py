"""What a script makes of Debian's packages in minutes: kept on this computer, and made anew when the script changes."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from roles.sandbox import seen
from roles.sandbox.layout import lay_out
from roles.sandbox.settings import Settings
from tests.conftest import run


def folder_of(recipe: Path, cache: Path, timeout: float) -> Path:
    """The folder that a script makes, from the cache if it has this script's.

    :param recipe: its arguments are the folder, the package mirror, and what apt must be told to reach it
    :param timeout: seconds that it may take
    """
    if os.geteuid() != 0:
        pytest.fail("a file system with Debian on it is made by root alone: run the tests as root")
    folder = cache / digest(recipe)
    with alone(cache):
        if not folder.exists():
            layout = lay_out(Settings())
            found = seen.parse(run("sh", "-c", seen.look(layout)).output.splitlines(), layout)
            assert found.mirrors, "this computer's own package sources name no mirror of Debian"
            partial = folder.with_suffix(".partial")
            made = run("sh", str(recipe), str(partial), found.mirrors.main, *found.apt_options, timeout=timeout)
            assert made.status == 0, made.text
            partial.rename(folder)
    return folder


def digest(recipe: Path) -> str:
    """What a file is called in the cache that this script has made."""
    return hashlib.sha256(recipe.read_bytes()).hexdigest()[:12]


@contextmanager
def alone(cache: Path) -> Iterator[None]:
    """One at a time makes what is in the cache."""
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
