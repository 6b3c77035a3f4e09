"""What a host is."""

from __future__ import annotations

import shlex

from pyinfra.api import FactBase
from typing_extensions import override

from roles.base import apt, download, machine
from roles.base.apt import Apt, Record
from roles.base.download import Download, Found
from roles.base.machine import USER, Identity, Machine


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

    # pyinfra declares it static and calls it on the instance, which alone knows what was asked for.
    @override
    def default(self) -> list[str]:  # type: ignore[override]
        return list(self.names)


class AptFact(FactBase[Apt]):
    """Package sources, our keys, and what apt has fetched of them."""

    @override
    def command(self) -> str:
        return apt.LOOK

    @override
    def process(self, output: list[str]) -> Apt:
        return apt.read(output)

    default = Apt


class RecordFact(FactBase[Record]):
    """What came by us under a name, and what has become of it."""

    @override
    def command(self, record: str) -> str:
        return apt.look_at_record(record)

    @override
    def process(self, output: list[str]) -> Record:
        return apt.read_record(output)

    default = Record


class DownloadsFact(FactBase[list[Found]]):
    """How far the host is with each of these downloads; needs root to tell whether the reader can read."""

    @override
    def command(self, downloads: list[Download], reader: str) -> str:
        self.count = len(downloads)
        return download.look(downloads, reader)

    @override
    def process(self, output: list[str]) -> list[Found]:
        return download.parse(output, self.count)

    # Likewise.
    @override
    def default(self) -> list[Found]:  # type: ignore[override]
        return download.parse([], self.count)


class CheckoutFact(FactBase[str]):
    """The commit that a folder has checked out, with nothing changed in it; empty when there is none."""

    @override
    def requires_command(self, folder: str) -> str:
        return "git"

    @override
    def command(self, folder: str) -> str:
        git = f"git -C {shlex.quote(folder)}"
        return f'[ -z "$({git} status --porcelain 2>&1)" ] && {git} rev-parse --verify -q HEAD; true'

    @override
    def process(self, output: list[str]) -> str:
        return output[0].strip()

    @override
    @staticmethod
    def default() -> str:
        return ""


class PathsFact(FactBase[list[str]]):
    """Those of the paths that are there."""

    default = list

    @override
    def command(self, paths: list[str]) -> str:
        return f'for path in {shlex.join(paths)}; do [ -e "$path" ] || [ -L "$path" ] && echo "$path"; done; true'

    @override
    def process(self, output: list[str]) -> list[str]:
        return output


class EmptyFact(FactBase[bool]):
    """Whether a folder is there and has nothing in it."""

    default = bool

    @override
    def command(self, folder: str) -> str:
        return f'[ -d {shlex.quote(folder)} ] && [ -z "$(ls -A {shlex.quote(folder)})" ] && echo empty; true'

    @override
    def process(self, output: list[str]) -> bool:
        return output == ["empty"]


class AccountFact(FactBase[str]):
    """The home of the system user that the services run as; empty where there is no such user."""

    default = str

    @override
    def command(self) -> str:
        return f"getent passwd {USER} | cut -d : -f 6"

    @override
    def process(self, output: list[str]) -> str:
        return output[0].strip()


class IdentityFact(FactBase[Identity | None]):
    """The system user that the services run as; None where there is no such user."""

    @override
    def command(self) -> str:
        capabilities = "sed -n 's/^CapBnd:[[:space:]]*//p' /proc/1/status"
        return f"id -u {USER} 2>/dev/null && id -g {USER} && id -G {USER} && {capabilities}; true"

    @override
    def process(self, output: list[str]) -> Identity | None:
        return machine.parse_identity(output)

    @override
    @staticmethod
    def default() -> Identity | None:
        return None
