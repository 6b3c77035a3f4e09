"""The sandbox's scripts and files, from ``templates/sandbox/``."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from roles.sandbox.layout import INSIDE, Layout, Machine

TEMPLATES = Path(__file__).resolve().parents[2] / "templates" / "sandbox"


def render(template: str, **values: Any) -> str:
    """Fill in a template; a value that it names and that is not given is an error.

    :raises jinja2.UndefinedError: a value is missing
    """
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.filters["quote"] = shlex.quote
    return environment.get_template(template).render(**values)


def nspawn_command(layout: Layout, machine: Machine) -> str:
    """The command line that boots a machine. Its ``--machine`` and ``--directory`` are what a process is known by."""
    return shlex.join(
        [
            "systemd-nspawn",
            "--quiet",
            "--settings=no",
            "--boot",
            # The machines are ours alone: neither machined nor a scope of its own has to know them.
            "--register=no",
            "--keep-unit",
            f"--machine={machine.name}",
            f"--directory={machine.root}",
            f"--network-bridge={layout.bridge}",
            f"--bind-ro={layout.inputs}:{INSIDE}",
            "--resolv-conf=off",
            "--timezone=off",
            "--link-journal=no",
            # Docker runs inside a machine with these, and not without.
            "--capability=all",
            "--system-call-filter=add_key keyctl bpf",
        ]
    )
