"""What a host shows of Docker."""

from __future__ import annotations

from pyinfra.api import FactBase
from typing_extensions import override

from roles.docker import seen
from roles.docker.seen import Seen


class DockerFact(FactBase[Seen]):
    """Packages, service, daemon.json, what the daemon says of itself, and the containers that run, in one round trip."""

    @override
    def command(self) -> str:
        return seen.COMMAND

    @override
    def process(self, output: list[str]) -> Seen:
        return seen.parse(output)

    default = Seen
