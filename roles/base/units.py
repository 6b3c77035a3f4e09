"""Texts of systemd units: rendered from templates, with words escaped as systemd reads them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from roles.base.templates import render as render_template

OWN_VARIABLES = frozenset({"HOME", "LLAMA_CACHE", "GPUQUILT_STATE"})

DOCKER = "/usr/bin/docker"
"""What starts a container of a unit."""
SECONDS = 20
"""How long Docker may take to answer a question."""

_PLAIN = re.compile(r"[A-Za-z0-9_@+=:,./-]+")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def container(unit: str) -> str:
    """The name of the container that a unit of ours runs, where it runs one."""
    return f"gpuquilt-{unit.removesuffix('.service')}"


def main_pid(unit: str) -> str:
    """Shell lines that set ``pid`` to the process that does a unit's work, 0 where there is none.

    Of a unit that runs a container that is the container's first process, and not the `docker run` that systemd has started.
    Docker is asked only then. Of a client that was upgraded while it ran, the kernel says ``/usr/bin/docker (deleted)``.

    :param unit: a name, or a variable of the shell with its dollar sign, that is the name of a unit
    """
    return f"""pid=$(systemctl show {unit} --property=MainPID --value)
case "$(readlink "/proc/$pid/exe")" in
*/docker | */docker\\ *)
    unit_name={unit}
    pid=$(timeout {SECONDS} docker inspect --format '{{{{.State.Pid}}}}' "{container("${unit_name%.service}")}" 2>/dev/null)
    pid=${{pid:-0}}
    ;;
esac"""


def render(template: str, **values: Any) -> str:
    """Fill in a template with the filters `command_line` and `assignment`.

    :param template: its path below ``templates``
    :raises jinja2.UndefinedError: the template names a value that is not given
    """
    filters = {"command_line": command_line, "assignment": lambda variable: assignment(*variable)}
    return render_template(template, filters, **values)


def command_line(words: Iterable[str]) -> str:
    """Words for ExecStart= and its kin, where `%` begins a specifier and `$` a variable.

    :raises ValueError: a word holds a control character
    """
    return " ".join(_quoted(word.replace("$", "$$")) for word in words)


def assignment(name: str, value: str) -> str:
    """A variable for Environment=, where `$` is a character like any other.

    :raises ValueError: the value holds a control character, which systemd would leave out with the whole variable
    """
    return _quoted(f"{name}={value}")


def variables(environment: dict[str, str]) -> dict[str, str]:
    """The variables themselves, for validators.

    :raises ValueError: a name is none that a program could read, is one that the units set, or a value is not printable
    """
    for name, value in environment.items():
        if not _VARIABLE.fullmatch(name):
            raise ValueError(f"{name!r} is not the name of a variable: letters, digits and _, no digit first")
        if name in OWN_VARIABLES:
            raise ValueError(f"{name} is set by the unit itself")
        printable(value)
    return environment


def printable(text: str) -> str:
    """The text itself, for validators.

    :raises ValueError: it holds a control character, such as a line break
    """
    if _CONTROL.search(text):
        raise ValueError(f"{text!r} holds a control character, which a systemd unit cannot carry")
    return text


def _quoted(word: str) -> str:
    if _PLAIN.fullmatch(word):
        return word
    escaped = printable(word).replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'
