"""What a host shows of its boot configuration."""

from __future__ import annotations

from pyinfra.api import FactBase
from typing_extensions import override

from roles.passthrough import boot
from roles.passthrough.boot import Boot


class BootFact(FactBase[Boot]):
    """Boot loader, initramfs, and our part in both, in one round trip."""

    @override
    def command(self) -> str:
        return boot.look()

    @override
    def process(self, output: list[str]) -> Boot:
        return boot.parse(output)

    default = Boot
