"""What a host says while it reboots."""

import fcntl
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roles.base.reboot import HELD, Life, parse
from tests.conftest import run


@pytest.mark.parametrize(
    ("lines", "life"),
    [
        (["boot_id 5b6f", "state running"], Life("5b6f", "running")),
        (["boot_id 5b6f", "state degraded"], Life("5b6f", "degraded")),
        (
            ["boot_id 5b6f", "state stopping", "refused Operation inhibited by apt"],
            Life("5b6f", "stopping", "Operation inhibited by apt"),
        ),
        (["boot_id 5b6f", "state running", "refused "], Life("5b6f", "running", "no reason was given")),
        (["boot_id 5b6f", "state "], Life("5b6f", "")),
        (["Welcome!"], Life()),
        ([], Life()),
    ],
)
def test_a_sign_of_life(lines: list[str], life: Life) -> None:
    assert parse(lines) == life


@pytest.mark.parametrize(
    ("state", "started"), [("running", True), ("degraded", True), ("", True), ("starting", False), ("initializing", False)]
)
def test_a_boot_that_went_badly_has_come_to_its_end_too(state: str, started: bool) -> None:
    assert Life("5b6f", state).started is started


@given(st.lists(st.text()))
def test_whatever_is_said_is_a_sign_of_life_or_none(lines: list[str]) -> None:
    assert isinstance(parse(lines), Life)


@pytest.mark.parametrize("name", ["lock-frontend", "lock"])
def test_a_lock_of_dpkg_is_seen_while_it_is_held(tmp_path: Path, name: str) -> None:
    command = HELD.replace("/var/lib/dpkg", str(tmp_path))
    assert run("sh", "-c", command).text == ""
    with (tmp_path / name).open("w") as lock:
        assert run("sh", "-c", command).text == ""
        fcntl.lockf(lock, fcntl.LOCK_EX)
        comm = Path("/proc/self/comm").read_text().strip()
        assert run("sh", "-c", command).output == f"held by {comm} ({os.getpid()})\n"
    assert run("sh", "-c", command).text == ""
