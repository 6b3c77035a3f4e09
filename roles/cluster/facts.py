"""What a host runs."""

from __future__ import annotations

from pyinfra.api import FactBase
from typing_extensions import override

from roles.cluster import seen
from roles.cluster.state import Seen


class SeenFact(FactBase[Seen]):
    """Services, the release in use and the states that are remembered, in one round trip."""

    @override
    def command(self) -> str:
        return seen.COMMAND

    @override
    def process(self, output: list[str]) -> Seen:
        return seen.parse(output)

    default = Seen
