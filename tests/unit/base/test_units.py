"""Words in unit files, read back as systemd reads them (systemd.service(5), "Command lines"; systemd.syntax(7), "Quoting")."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import UndefinedError

from roles.base.units import assignment, command_line, main_pid, render, variables

printable = st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), max_size=40)

ESCAPES = {"\\": "\\", '"': '"', "'": "'", "n": "\n", "t": "\t", "s": " "}


def split(line: str) -> list[str]:
    """What systemd's extract_first_word() makes of a line with quotes and C escapes."""
    words: list[str] = []
    word, quote, inside = "", "", False
    letters = iter(line)
    for letter in letters:
        if letter == "\\":
            word, inside = word + ESCAPES[next(letters)], True
        elif letter == quote:
            quote = ""
        elif quote:
            word += letter
        elif letter in "'\"":
            quote, inside = letter, True
        elif letter not in " \t":
            word, inside = word + letter, True
        elif inside:
            words.append(word)
            word, inside = "", False
    assert not quote
    return [*words, word] if inside else words


def expanded(text: str, mark: str) -> str:
    """Doubled marks become one; a single one would begin a specifier or a variable."""
    assert mark not in text.replace(mark * 2, "")
    return text.replace(mark * 2, mark)


@given(st.lists(printable, max_size=5))
def test_a_command_line_comes_back_word_for_word(words: list[str]) -> None:
    line = command_line(words)
    assert "\n" not in line
    assert [expanded(expanded(word, "%"), "$") for word in split(line)] == words


@given(printable)
def test_a_variable_comes_back_as_it_was(value: str) -> None:
    assert [expanded(word, "%") for word in split(assignment("NAME", value))] == [f"NAME={value}"]


@pytest.mark.parametrize("word", [";", "-", "@x", "|", "", " ", "\\", '"', "a b"])
def test_words_with_a_meaning_of_their_own(word: str) -> None:
    line = command_line(["/bin/true", word])
    assert split(line) == ["/bin/true", word]
    assert not line.endswith(" ;")


@pytest.mark.parametrize("word", ["a\nb", "\0", "\x7f", "tab\there"])
def test_control_characters_are_refused(word: str) -> None:
    with pytest.raises(ValueError, match="control character"):
        command_line([word])
    with pytest.raises(ValueError, match="control character"):
        variables({"NAME": word})


@pytest.mark.parametrize("name", ["", "1A", "A B", "A=B", "HOME", "LLAMA_CACHE", "GPUQUILT_STATE", "Ä"])
def test_names_of_variables(name: str) -> None:
    with pytest.raises(ValueError, match=r"name of a variable|set by the unit"):
        variables({name: "1"})


def test_a_value_that_is_missing_is_an_error() -> None:
    with pytest.raises(UndefinedError):
        render("systemd/rpc-server.service.j2", command=["/bin/true"])


def pid_of(folder: Path, unit: str, main: int, docker: str) -> str:
    """What `main_pid` finds where systemd names this process, and Docker is this script."""
    programs = {"systemctl": f"echo {main}", "docker": docker}
    for name, script in programs.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    script = f'set -u; unit=rpc-server.service\n{main_pid(unit)}\necho "=$pid="'
    return subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True, env=environment).stdout.strip()


@pytest.fixture
def client(tmp_path: Path) -> Iterator[int]:
    """A process whose program is called as Docker's client is."""
    (tmp_path / "bin").mkdir()
    copied = shutil.copy("/usr/bin/sleep", tmp_path / "bin/docker")
    with subprocess.Popen([copied, "60"]) as process:
        yield process.pid
        process.kill()


@pytest.mark.parametrize("unit", ["rpc-server.service", '"$unit"'])
def test_the_process_of_a_container_is_its_first(tmp_path: Path, client: int, unit: str) -> None:
    says = f'echo "$*" >>{tmp_path}/asked; echo 4711'
    assert pid_of(tmp_path, unit, client, says) == "=4711="
    assert (tmp_path / "asked").read_text() == "inspect --format {{.State.Pid}} gpuquilt-rpc-server\n"


def test_a_client_that_was_upgraded_is_still_dockers(tmp_path: Path, client: int) -> None:
    (tmp_path / "bin/docker").unlink()
    assert pid_of(tmp_path, "rpc-server.service", client, "echo 4711") == "=4711="


def test_a_container_that_is_not_there_has_no_process(tmp_path: Path, client: int) -> None:
    """Then the real one prints an empty line, and fails."""
    assert pid_of(tmp_path, "rpc-server.service", client, "echo; echo no such object >&2; exit 1") == "=0="


@pytest.mark.parametrize("runs", [True, False])
def test_docker_is_not_asked_for_a_program_of_the_host(tmp_path: Path, runs: bool) -> None:
    main = os.getpid() if runs else 0
    assert pid_of(tmp_path, "rpc-server.service", main, f"touch {tmp_path}/asked") == f"={main}="
    assert not (tmp_path / "asked").exists()
