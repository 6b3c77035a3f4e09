"""The sandbox's scripts and files, from ``templates/sandbox/``."""

from __future__ import annotations

import shlex
from typing import Any

from roles.base.templates import TEMPLATES as ALL_TEMPLATES
from roles.base.templates import render as render_template
from roles.sandbox.layout import BASE_INSIDE, COMPILER_CACHE_INSIDE, INSIDE, Layout, Machine

TEMPLATES = ALL_TEMPLATES / "sandbox"


def render(template: str, **values: Any) -> str:
    """Fill in a template; a value that it names and that is not given is an error.

    :raises jinja2.UndefinedError: a value is missing
    """
    return render_template(f"sandbox/{template}", **values)


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
            f"--bind-ro={layout.base(machine.suite)}:{BASE_INSIDE}",
            f"--bind={layout.compiler_cache}:{COMPILER_CACHE_INSIDE}",
            # Docker's layers are overlay mounts, and those cannot stand on the overlay that is the machine's root.
            f"--bind={machine.docker}:/var/lib/docker",
            "--resolv-conf=off",
            "--timezone=off",
            "--link-journal=no",
            # Docker runs inside a machine with these, and not without.
            "--capability=all",
            "--system-call-filter=add_key keyctl bpf",
        ]
    )
