"""Words in unit files, read back as systemd reads them (systemd.service(5), "Command lines"; systemd.syntax(7), "Quoting")."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import UndefinedError

from roles.base.units import assignment, command_line, render, variables

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
