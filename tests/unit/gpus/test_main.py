"""`python -m roles.gpus`, as a user runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.gpus.cases import FOLDER

PASCAL, NONE = FOLDER / "1080ti-x4-slot-unknown.txt", FOLDER / "no-gpu.txt"


def gpus(*arguments: str | Path, stdin: bytes = b"") -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "roles.gpus", *map(str, arguments)], input=stdin, capture_output=True, timeout=60
    )
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def test_a_file() -> None:
    done = gpus(PASCAL)
    (gpu,) = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (0, "")
    assert (gpu["file"], gpu["chip"], gpu["link"]["verdict"]) == (str(PASCAL), "GP102", "narrow")


def test_several_files_make_one_list() -> None:
    done = gpus(FOLDER / "a770-alone.txt", NONE, PASCAL)
    assert [(Path(gpu["file"]).stem, gpu["chip"]) for gpu in json.loads(done.stdout)] == [
        ("a770-alone", "DG2"),
        ("1080ti-x4-slot-unknown", "GP102"),
    ]


def test_standard_input() -> None:
    done = gpus("-", stdin=PASCAL.read_bytes())
    assert [(gpu["file"], gpu["chip"]) for gpu in json.loads(done.stdout)] == [("-", "GP102")]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "latin-1"])
def test_a_text_may_come_from_any_editor(encoding: str) -> None:
    text = "Küche\r\n01:00.0 VGA compatible controller: NVIDIA Corporation GP102 [GeForce GTX 1080 Ti]\r\n"
    done = gpus("-", stdin=text.encode(encoding))
    assert [gpu["chip"] for gpu in json.loads(done.stdout)] == ["GP102"]


@pytest.mark.parametrize("stdin", [NONE.read_bytes(), b"", b"\xef\xbb\xbfno lspci at all\n"])
def test_no_gpu_is_an_answer(stdin: bytes) -> None:
    done = gpus("-", stdin=stdin)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[]\n", "")


@pytest.mark.parametrize("content", [b"\x7fELF\0\0\0", b"01:00.0 VGA\0"])
def test_what_is_not_text_is_refused(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "binary"
    file.write_bytes(content)
    done = gpus(PASCAL, file)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"{file}: this is not text")
    assert done.stderr.count("\n") == 1


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    missing = gpus(tmp_path / "missing")
    assert (missing.returncode, missing.stdout, missing.stderr) == (2, "", f"{tmp_path}/missing: No such file or directory\n")
    folder = gpus(tmp_path)
    assert (folder.returncode, folder.stdout, folder.stderr) == (2, "", f"{tmp_path}: Is a directory\n")


def test_help() -> None:
    done = gpus("-h")
    assert done.returncode == 0
    assert "FILE" in done.stdout


def test_no_file_is_a_mistake() -> None:
    assert gpus().returncode == 2


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    command = f"{sys.executable} -m roles.gpus {' '.join([str(PASCAL)] * 200)} | head -c 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("[", "")
