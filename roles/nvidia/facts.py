"""What a host shows of NVIDIA's driver as this role leaves it."""

from __future__ import annotations

from pyinfra.api import FactBase
from typing_extensions import override

from roles.nvidia import setup
from roles.nvidia.setup import Setup


class SetupFact(FactBase[Setup]):
    """Files, packages, initial RAM disks and units, in one round trip."""

    @override
    def command(self) -> str:
        return setup.COMMAND

    @override
    def process(self, output: list[str]) -> Setup:
        return setup.parse(output)

    default = Setup
