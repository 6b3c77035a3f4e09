"""How a program of a release is started: by itself, or by Docker in a container. Pure."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from io import StringIO

from roles.base.machine import HOME, Identity
from roles.base.units import DOCKER, container
from roles.cluster.plan import HostPlan
from roles.cluster.state import CURRENT, LLAMA_SERVER, MARK
from roles.llama_cpp.manifest import Manifest

STOP_SECONDS = 3
"""How long a container may take to end: asked to while it answers, llama-server was seen to hang."""


@dataclass(frozen=True)
class Program:
    """A program of a release on a host.

    :param path: in the release, e.g. ``bin/llama-server``
    :param image: Docker's name for the content of the image that it is in, ``sha256:…``; empty where the host itself has it
    :param user: whom it runs as in a container, None elsewhere
    """

    path: str
    image: str = ""
    user: Identity | None = None


def program(manifest: Manifest, target: str, user: Identity | None) -> Program | None:
    """The program of a target in a release; None where that is an image and the user is not there.

    :param target: llama.cpp's logical name of the program
    """
    path = manifest.programs[target]
    if not manifest.image:
        return Program(path)
    return None if user is None else Program(path, manifest.image, user)


def devices(unit: str, plan: HostPlan) -> tuple[str, ...]:
    """What the container of a unit gets of its host's devices, as `docker run --device` names it."""
    return plan.devices if unit != LLAMA_SERVER or plan.head_has_devices else ()


def command_line(
    unit: str,
    plan: HostPlan,
    program: Program,
    arguments: Sequence[str],
    before: Sequence[str] = (),
    variables: Iterable[str] = (),
    files: Iterable[str] = (),
    stop_signal: str = "SIGTERM",
) -> list[str]:
    """The words that start a program for a unit.

    :param unit: its name
    :param arguments: of the program
    :param before: a program, with its absolute path and its arguments, that starts this one in its own place
    :param variables: names of the unit's own variables that the program needs beside `MARK`
    :param files: what a container is to see of the host, too, for reading alone, at the same path
    :param stop_signal: what ends it in a container, whose first process does not even notice a signal that it does not handle
    """
    words = [*before, f"{CURRENT}/{program.path}", *arguments]
    if program.user is None:
        return words
    run = [DOCKER, "run", "--rm", "--name", container(unit), "--pull", "never", "--log-driver", "none"]
    run += ["--stop-signal", stop_signal, "--stop-timeout", str(STOP_SECONDS)]
    run += _limits(unit, plan, program.user) + _sees(variables, files)
    return [*run, "--entrypoint", words[0], program.image, *words[1:]]


def _limits(unit: str, plan: HostPlan, user: Identity) -> list[str]:
    """What a container may do and have."""
    # A Docker that maps users gives the host's network to none but those that it does not map.
    words = ["--network", "host", "--userns", "host", "--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"]
    words += ["--user", f"{user.user}:{user.group}"]
    words += [word for group in user.groups for word in ("--group-add", str(group))]
    words += [word for device in devices(unit, plan) for word in ("--device", device)]
    # Docker fails where it may not, while systemd gives its services as much as it can.
    words += ["--ulimit", "memlock=-1"] if user.unlimited else []
    if plan.container_memory is not None:
        # Both the same: no swap beside it.
        words += ["--memory", f"{plan.container_memory}m", "--memory-swap", f"{plan.container_memory}m"]
    return words


def _sees(variables: Iterable[str], files: Iterable[str]) -> list[str]:
    """The files and variables of a container that are not the image's."""
    words = ["--tmpfs", "/tmp", "--mount", _mount(HOME), "--workdir", HOME]
    # Each by itself: one may be a link to another folder, which Docker follows here and nobody can follow in there.
    words += [word for file in files for word in ("--mount", _mount(file, "readonly"))]
    words += ["--env", f"HOME={HOME}", "--env", f"LLAMA_CACHE={HOME}"]
    # Without values, which `ps` would show to everybody: Docker's client takes them from the unit's own.
    words += [word for name in (MARK, *sorted(variables)) for word in ("--env", name)]
    return words


def _mount(path: str, *options: str) -> str:
    """A value of --mount, which is a line of CSV."""
    line = StringIO()
    csv.writer(line, lineterminator="").writerow(["type=bind", f"source={path}", f"target={path}", *options])
    return line.getvalue()
