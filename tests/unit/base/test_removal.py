"""What is taken away of files, on real folders."""

from __future__ import annotations

from pathlib import Path

from roles.base.facts import EmptyFact
from tests.conftest import run


def is_empty(folder: Path) -> bool:
    ended = run("sh", "-c", EmptyFact().command(str(folder)))
    assert (ended.status, ended.errors) == (0, "")
    return EmptyFact().process(ended.output.splitlines())


def test_a_folder_is_empty_if_not_even_a_hidden_file_is_in_it(tmp_path: Path) -> None:
    assert is_empty(tmp_path)
    assert not is_empty(tmp_path / "nowhere")
    (tmp_path / ".hidden").touch()
    assert not is_empty(tmp_path)
