"""What one machine is to be before anything is built on it: its GPUs, its NVIDIA driver, and whether a reboot is owed. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from roles.cluster.backend import UNREACHABLE, LeftOut, Lender, Selection, select
from roles.cluster.driver import Driver, Ground, plan_driver, present
from roles.cluster.graphics import plan_graphics, with_vulkan
from roles.cluster.passthrough import Function, Passthrough, plan_passthrough
from roles.cluster.remarks import Remarks
from roles.cluster.settings import Runtime, Settings
from roles.gpus.catalog import Catalog
from roles.gpus.driver import Drivers
from roles.gpus.gpu import Gpu
from roles.gpus.pci import Device
from roles.gpus.state import Kind, State, state


@dataclass(frozen=True)
class MachinePlan:
    """What one machine has and is to have, whatever group it is in.

    :param gpus: the GPUs that compute here: seen, and declared
    :param left_out: the other GPUs, each with the reason
    :param driver_now: NVIDIA's driver that is there, None where there is none
    :param driver_state: how it stands with it; None where no GPU of NVIDIA is to compute
    :param driver: the one that is to be there, None where none is needed
    :param graphics: the packages that its GPUs of other vendors need
    :param steps: what would be done before anything is built, in order
    :param passthrough: the PCI functions that are to be bound to vfio-pci: the cards that `passthrough` names, with all that
        goes with them
    :param passthrough_absent: what the kernel was told to bind for cards that `passthrough` names and that are not seen
    :param reboot: why a reboot is owed, empty where none is
    :param must_reboot: what is to be done here does not work before that reboot; false where only its packages ask for one
    :param choices: where a setting of the inventory decided, and where the plan had to take the second best
    :param refusals: why it cannot be done as it stands, and the way out
    :param runtime: how it runs its release, if it runs one
    """

    gpus: tuple[Gpu, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    driver_now: Driver | None = None
    driver_state: State | None = None
    driver: Driver | None = None
    passthrough: tuple[Function, ...] = ()
    passthrough_absent: tuple[str, ...] = ()
    graphics: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    reboot: str = ""
    must_reboot: bool = False
    choices: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()
    runtime: Runtime = "native"


@dataclass(frozen=True)
class Provision:
    """What was chosen for a machine, and what is to be said of it."""

    selection: Selection
    driver_now: Driver | None
    driver_state: State | None
    driver: Driver | None
    passing: Passthrough
    graphics: tuple[str, ...]
    remarks: Remarks
    runtime: Runtime

    @property
    def machine(self) -> MachinePlan:
        """The part of the plan that this makes, once everything has been said."""
        return MachinePlan(
            gpus=self.selection.gpus,
            left_out=self.selection.left_out,
            driver_now=self.driver_now,
            driver_state=self.driver_state,
            driver=self.driver,
            passthrough=self.passing.functions,
            passthrough_absent=self.passing.absent,
            graphics=self.graphics,
            steps=tuple(self.remarks.steps),
            reboot="; ".join([*self.remarks.reboots, *self.remarks.wishes]),
            must_reboot=bool(self.remarks.reboots),
            choices=tuple(self.remarks.choices),
            refusals=tuple(self.remarks.refusals),
            runtime=self.runtime,
        )


def provision(
    seen: Sequence[Gpu],
    devices: Sequence[Device],
    drivers: Drivers,
    settings: Settings,
    works: bool,
    system: str,
    today: date,
    catalog: Catalog,
    lender: Lender | None = None,
) -> Provision:
    """Choose GPUs and driver of one machine.

    :param seen: its GPUs
    :param devices: its PCI devices, as far as they were looked at: GPUs, the bridges above them, what shares their groups
    :param works: it is a worker
    :param system: its distribution and release, e.g. debian13
    :param lender: what it is a virtual machine of, as far as that is known
    """
    remarks = Remarks()
    passing = plan_passthrough(devices, drivers.passthrough, settings, remarks)
    selection = select(seen, passing, settings, works, system, catalog, remarks, lender)
    nvidia = [gpu for gpu in selection.gpus if gpu.vendor == "nvidia"]
    driver = None
    found = _state(selection, drivers, settings, catalog)
    if nvidia:
        ground = Ground(nvidia, selection.backend == "cuda", drivers, system, today, catalog)
        driver = plan_driver(ground, settings, remarks)
        driver = with_vulkan(driver, selection, drivers, system, catalog, remarks)
        _say_problem(drivers, found, remarks)
    if drivers.reboot_wanted:
        remarks.wishes.append("its packages ask for one")
    graphics = plan_graphics(selection, settings.runtime, drivers.boots, system, catalog, remarks)
    return Provision(selection, present(drivers), found, driver, passing, graphics, remarks, settings.runtime)


def _state(selection: Selection, drivers: Drivers, settings: Settings, catalog: Catalog) -> State | None:
    """Of a host whose only card is dead it is told too: that no driver helps."""
    gpus = [*selection.gpus, *(out.gpu for out in selection.left_out if out.reason == UNREACHABLE)]
    nvidia = [gpu for gpu in gpus if gpu.vendor == "nvidia"]
    return state(drivers, nvidia, catalog, settings.driver != "unmanaged") if nvidia else None


def _say_problem(drivers: Drivers, found: State | None, remarks: Remarks) -> None:
    problem = drivers.nvidia.problem
    if problem and not remarks.reboots and found and found.kind in (Kind.SILENT, Kind.LOADED, Kind.NOT_BUILT):
        remarks.warnings.append(f"nvidia-smi says {problem!r}: see `dmesg` there for NVIDIA's own reason (NVRM).")
