"""The plan as a file: all of it or nothing, and nothing but a plain file is replaced."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from roles.cluster.plan import as_data
from roles.preflight.record import write
from tests.unit.cluster.examples import good_plan

PLAN = good_plan()


def test_the_plan_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    for _ in range(2):
        assert write(str(file), PLAN) == []
        assert json.loads(file.read_text()) == as_data(PLAN)
        assert list(tmp_path.iterdir()) == [file]
        file.write_text("of the day before")


@pytest.mark.parametrize("name", ["missing/plan.json", "folder", "pipe", "link", "file/plan.json", ".", "x" * 300])
def test_what_cannot_be_written_is_one_sentence_and_leaves_nothing(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("of somebody else")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    before = {path: path.lstat().st_mtime_ns for path in tmp_path.iterdir()}
    (sentence,) = write(str(tmp_path / name), PLAN)
    assert re.fullmatch(r"inventory: plan_json = '.*' cannot be written \([^)]+\): name a file in a folder .*\.", sentence)
    assert {path: path.lstat().st_mtime_ns for path in tmp_path.iterdir()} == before
