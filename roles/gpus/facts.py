"""What a host shows of its GPUs and their drivers. Each fact is one command that installs, changes and wakes nothing."""

from __future__ import annotations

from pyinfra.api import FactBase
from typing_extensions import override

from roles.gpus import lspci, nvidia, sysfs
from roles.gpus.driver import Drivers
from roles.gpus.pci import Device


class PciFact(FactBase[list[Device]]):
    """Cards with all their functions, the bridges above them and what shares their IOMMU groups, by sysfs; needs no root."""

    default = list

    @override
    def command(self) -> str:
        return sysfs.look()

    @override
    def process(self, output: list[str]) -> list[Device]:
        return sysfs.parse(output)


class LspciFact(FactBase[list[Device]]):
    """What lspci says of the display devices and the bridges above them that are awake; empty where there is no lspci."""

    default = list

    @override
    def command(self) -> str:
        return sysfs.ask_lspci()

    @override
    def process(self, output: list[str]) -> list[Device]:
        return lspci.parse("\n".join(output))


class DriversFact(FactBase[Drivers]):
    """Drivers, and what would have to accept new ones."""

    default = Drivers

    @override
    def command(self) -> str:
        return nvidia.look()

    @override
    def process(self, output: list[str]) -> Drivers:
        return nvidia.parse(output)
