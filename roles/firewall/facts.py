"""What a host shows of the guard."""

from __future__ import annotations

from pyinfra.api import FactBase
from typing_extensions import override

from roles.firewall import guard
from roles.firewall.guard import Guard


class GuardFact(FactBase[Guard]):
    """File, unit and live table, in one round trip."""

    @override
    def command(self) -> str:
        return guard.COMMAND

    @override
    def process(self, output: list[str]) -> Guard:
        return guard.parse(output)

    default = Guard
