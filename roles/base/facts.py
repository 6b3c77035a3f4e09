"""What a host is."""

from __future__ import annotations

import shlex

from pyinfra.api import FactBase
from typing_extensions import override

from roles.base import machine
from roles.base.machine import Machine


class MachineFact(FactBase[Machine]):
    """The host as this run finds it; needs no root, so that a missing sudo can be told from all else."""

    @override
    def command(self) -> str:
        return machine.COMMAND

    @override
    def process(self, output: list[str]) -> Machine:
        return machine.parse(output)

    @override
    @staticmethod
    def default() -> Machine:
        return machine.parse([])


class MissingPackagesFact(FactBase[list[str]]):
    """Those of the named Debian packages that are not installed."""

    @override
    def command(self, names: list[str]) -> str:
        self.names = names
        quoted = " ".join(shlex.quote(name) for name in names)
        return f"dpkg-query -W -f '${{db:Status-Status}} ${{Package}}\\n' {quoted} 2>/dev/null; true"

    @override
    def process(self, output: list[str]) -> list[str]:
        installed = {line.removeprefix("installed ") for line in output if line.startswith("installed ")}
        return [name for name in self.names if name not in installed]

    @override
    def default(self) -> list[str]:  # type: ignore[override]
        return list(self.names)
