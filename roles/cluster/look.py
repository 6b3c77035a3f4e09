"""Phase 1 of a deploy: look at all hosts, make one plan for all, and stop before any change where it cannot be made.

`look` stops; `examine` says the same of the same hosts, and leaves the stopping to who calls it.

Deploy code runs once per host, at the same time; the first to come looks at all of them, the others read the result.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TypeVar
from weakref import WeakKeyDictionary, WeakSet

import gevent
from gevent.lock import BoundedSemaphore
from pyinfra import logger
from pyinfra.api.arguments import CONNECTOR_ARGUMENT_KEYS, all_global_arguments
from pyinfra.api.connectors import get_all_connectors
from pyinfra.api.exceptions import PyinfraError
from pyinfra.api.host import Host as PyinfraHost
from pyinfra.api.inventory import Inventory
from pyinfra.api.state import State
from pyinfra.context import ctx_config, ctx_host, ctx_state

from roles.base.connection import is_quick, unreachable
from roles.base.facts import MachineFact
from roles.base.machine import Machine
from roles.base.settings import HostData, HostSettings, RoleSettings, once, read_settings
from roles.cluster.facts import SeenFact
from roles.cluster.hypervisors import RunsOn
from roles.cluster.plan import (
    CLUSTER,
    SERVING,
    Host,
    HostPlan,
    Plan,
    group_problems,
    host_problems,
    machine_refusals,
    make_plan,
    plan_machine,
)
from roles.cluster.provision import MachinePlan
from roles.cluster.reboots import Reboots, Standing, carrying
from roles.cluster.settings import Settings
from roles.cluster.switch import Switch, foreign_units
from roles.gpus.catalog import load
from roles.gpus.driver import Drivers
from roles.gpus.facts import DriversFact, LspciFact, PciFact
from roles.gpus.gpu import Gpu
from roles.gpus.host import see
from roles.gpus.pci import Device

T = TypeVar("T")

EPOCH = "SOURCE_DATE_EPOCH"
"""The variable that makes a plan the same on another day."""

Check = Callable[[HostPlan, HostSettings], list[str]]
"""A role's own look at a host that is to run something (its facts are at hand): what is wrong with it, one sentence each."""

MachineCheck = Callable[[MachinePlan, HostSettings], list[str]]
"""The same for every host, hypervisors too."""


@dataclass(frozen=True)
class Look:
    """What was seen and decided.

    :param plan: one plan for all hosts, with everything that speaks against it
    :param settings: host → its settings, by role; a host whose settings are not valid has none
    :param hosts: what the plan was made from
    :param switch: what the hosts of this run tell each other while they are switched
    :param reboots: likewise of the reboots that they owe
    :param only: the group that was looked at, None where all hosts were
    """

    plan: Plan
    settings: Mapping[str, HostSettings] = field(default_factory=dict)
    hosts: Sequence[Host] = ()
    switch: Switch = field(default_factory=lambda: Switch(Plan()))
    reboots: Reboots = field(default_factory=Reboots)
    only: str | None = None


_looks: WeakKeyDictionary[State, Look | PyinfraError] = WeakKeyDictionary()
_warned: WeakSet[State] = WeakSet()
_one_at_a_time = BoundedSemaphore()


def look(
    models: Sequence[type[RoleSettings]],
    checks: Sequence[Check] = (),
    machine_checks: Sequence[MachineCheck] = (),
    only: str | None = None,
) -> Look:
    """Look at all hosts of the inventory, once per run, and say what is not good and no reason to stop.

    A second call in the same run gives what the first one found: what it is called with counts only the first time.

    :param models: the settings of all roles that the deploy uses
    :param checks: what roles want to know before the first change, of the hosts that are to run something
    :param machine_checks: likewise of every host
    :param only: a group: its hosts alone are looked at, as if they were in no other one; the others may be off, and their
        settings unfinished
    :raises PyinfraError: with every reason against the run, one a line
    """
    found = examine(models, checks, machine_checks, only)
    if found.plan.refusals:
        raise PyinfraError("nothing was changed, because:\n" + "\n".join(f"    {line}" for line in found.plan.refusals))
    state = ctx_state.get()
    if state not in _warned:
        _warned.add(state)
        for line in found.plan.warnings:
            logger.warning(f"    {line}")
    return found


def examine(
    models: Sequence[type[RoleSettings]],
    checks: Sequence[Check] = (),
    machine_checks: Sequence[MachineCheck] = (),
    only: str | None = None,
) -> Look:
    """The same as `look`, with the reasons against the run among what was found."""
    state = ctx_state.get()
    with _one_at_a_time:
        if state not in _looks:
            try:
                _looks[state] = _look(state, [Settings, *models], checks, machine_checks, only)
            except PyinfraError as error:
                _looks[state] = error
    found = _made(state)
    if found.only != only:
        raise PyinfraError(
            "inventory: one of these deploys looks at all hosts, another one at some of them: give pyinfra one at a time; nothing"
            " was changed."
        )
    return found


def current_switch() -> Switch:
    """The switch of this run."""
    return _made(ctx_state.get()).switch


def current_reboots() -> Reboots:
    """The reboots of this run."""
    return _made(ctx_state.get()).reboots


def stand(state: State, host: PyinfraHost) -> Standing:
    """Look at a host of this run once more: how does it stand now, by the same settings?"""
    sight = ask_hosts(state, _sight, [host.name])[host.name]
    planned = _made(state).reboots.hosts[host.name]
    return Standing(
        sight.machine.boot_id, plan_machine(sight.host(planned.name, planned.groups, planned.settings), _today(), load())
    )


def _made(state: State) -> Look:
    found = _looks[state]
    if isinstance(found, PyinfraError):
        raise found
    return found


def inventory_data(inventory: Inventory) -> list[HostData]:
    """What an inventory says of each host, in its order."""
    return [HostData(host.name, frozenset(host.groups), host.data.dict()) for host in inventory]


def foreign_keys() -> frozenset[str]:
    """The inventory keys that are pyinfra's own."""
    connectors = get_all_connectors().values()
    return frozenset(key for connector in connectors for key in connector.data_meta) | {key for key, _ in all_global_arguments()}


def _look(
    state: State,
    models: Sequence[type[RoleSettings]],
    checks: Sequence[Check],
    machine_checks: Sequence[MachineCheck],
    only: str | None,
) -> Look:
    data = inventory_data(state.inventory)
    if only is not None:
        data = [replace(host, groups=frozenset({only})) for host in data if only in host.groups]
    names = [host.name for host in data]
    missed = _do_without(state, names)
    wrong = _typed_wrongly(state)
    if wrong:
        return Look(Plan(refusals=tuple(once(wrong))), only=only)
    needed = CLUSTER if only is None else (only,)
    settings, problems = read_settings(models, data, foreign_keys())
    problems = _unsafe_arguments(data) + problems
    sights = ask_hosts(state, _sight, names)
    hosts = [
        sights[host.name].host(host.name, host.groups, settings[host.name][Settings]) for host in data if host.name in settings
    ]
    plan = make_plan(hosts, _today(), load(), needed)
    refusals = list(plan.refusals)
    if problems:
        refusals = problems + group_problems({host.name: host.groups for host in data}, needed)
        for host in data:
            there = sights[host.name]
            refusals += host_problems(host.name, there.machine, there.wants_sudo, bool(SERVING & host.groups))
        refusals += machine_refusals(plan.machines)
    switch = Switch(plan)
    if not refusals:
        refusals = _checked_machines(state, plan, settings, machine_checks) + _checked(state, switch, settings, checks)
    plan = replace(plan, warnings=(*missed, *plan.warnings), refusals=tuple(once(refusals)))
    return Look(plan, settings, hosts, switch, _reboots(state, plan, hosts), only)


def _do_without(state: State, needed: Collection[str]) -> list[str]:
    """Go on without the hosts that cannot be reached and are not needed; a sentence about them."""
    missed = {host for host in state.failed_hosts if host.name not in needed}
    # They would make an error of a run that has done all that it was to do.
    state.failed_hosts -= missed
    names = ", ".join(sorted(host.name for host in missed))
    return [f"{names}: cannot be reached (why stands above), which does not matter to this deploy."] if missed else []


def _reboots(state: State, plan: Plan, hosts: Sequence[Host]) -> Reboots:
    runs_on: RunsOn = {host.name: str(host.data.get("runs_on") or "") or None for host in state.inventory}
    boots = {host.name: host.machine.boot_id for host in hosts}
    # The computer that this runs on may be a guest of a hypervisor although it is not looked at itself.
    guests = [host.name for host in state.inventory if host.name not in boots and host.connected and runs_on[host.name]]
    boots |= ask_hosts(state, lambda host: host.get_fact(MachineFact, _sudo=False, _ignore_errors=True).boot_id, guests)
    return Reboots(
        hosts={host.name: host for host in hosts},
        standing={host.name: Standing(host.machine.boot_id, plan.machines[host.name]) for host in hosts},
        carrying=carrying(_own_boot(), boots, runs_on),
    )


def _own_boot() -> str:
    """The boot id of this computer; empty where it is no Linux."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


@dataclass(frozen=True)
class _Sight:
    """What a host shows before anything is planned for it.

    :param wants_sudo: commands go through sudo there, by the inventory or by ``--sudo``
    """

    machine: Machine
    wants_sudo: bool
    gpus: tuple[Gpu, ...]
    drivers: Drivers
    devices: tuple[Device, ...]

    def host(self, name: str, groups: frozenset[str], settings: Settings) -> Host:
        """The host for the plan."""
        return Host(name, groups, settings, self.machine, self.wants_sudo, self.gpus, self.drivers, self.devices)


def _sight(host: PyinfraHost) -> _Sight:
    """Four commands; where sudo is wanted and does not work, the GPUs are looked at without it."""
    wants_sudo = bool(host.data.get("_sudo", ctx_config.get().SUDO))
    machine = host.get_fact(MachineFact, _sudo=False)
    sudo = wants_sudo and machine.sudo == "yes"
    pci, lspci = host.get_fact(PciFact, _sudo=sudo), host.get_fact(LspciFact, _sudo=sudo)
    drivers = host.get_fact(DriversFact, _sudo=sudo)
    return _Sight(machine, wants_sudo, tuple(see(pci, lspci, drivers, load())), drivers, tuple(pci))


def _today() -> date:
    """The date on this computer, or the one that SOURCE_DATE_EPOCH stands for.

    Source of that variable: https://reproducible-builds.org/specs/source-date-epoch/
    """
    epoch = os.environ.get(EPOCH)
    return date.today() if epoch is None else datetime.fromtimestamp(int(epoch), UTC).date()


def _checked(state: State, switch: Switch, settings: Mapping[str, HostSettings], checks: Sequence[Check]) -> list[str]:
    """What speaks against the plan on the hosts that are to run something."""

    def ask(host: PyinfraHost) -> list[str]:
        plan = switch.plan.hosts[host.name]
        switch.seen[host.name] = host.get_fact(SeenFact)
        problems = foreign_units(plan, switch.seen[host.name])
        return problems + [line for check in checks for line in check(plan, settings[host.name])]

    return [f"{name}: {line}" for name, lines in ask_hosts(state, ask, switch.plan.hosts).items() for line in lines]


def _checked_machines(
    state: State, plan: Plan, settings: Mapping[str, HostSettings], checks: Sequence[MachineCheck]
) -> list[str]:
    """What speaks against the plan on any host."""

    def ask(host: PyinfraHost) -> list[str]:
        return [line for check in checks for line in check(plan.machines[host.name], settings[host.name])]

    return [f"{name}: {line}" for name, lines in ask_hosts(state, ask, plan.machines).items() for line in lines]


def _unsafe_arguments(data: Iterable[HostData]) -> list[str]:
    """pyinfra's arguments for single operations would hold for all of ours as host data, and let a failed run go on."""
    unsafe = {key for key, _ in all_global_arguments()} - set(CONNECTOR_ARGUMENT_KEYS)
    return [
        f"{host.name}: {key} would hold for every step of the run, failed ones included: take it out."
        for host in data
        for key in sorted(unsafe & set(host.data))
    ]


def _typed_wrongly(state: State) -> list[str]:
    """Ways to start pyinfra by which a part of the cluster could be left behind."""
    reasons = []
    if not is_quick():
        reasons.append(
            "inventory: config.py was not read, because pyinfra reads it from the working directory: change into gpuquilt's"
            " folder and run the command again."
        )
    elif state.config.FAIL_PERCENT != 0:
        reasons.append("inventory: --fail-percent would let a part of the cluster go on alone: run the command without it.")
    if state.config.IGNORE_ERRORS:
        reasons.append("inventory: IGNORE_ERRORS would let a failed run go on: take it out of config.py.")
    if state.limit_hosts is not None:
        reasons.append(
            "inventory: --limit and --exclude would switch a part of the cluster, and llama.cpp needs the same commit everywhere:"
            " run the command without them."
        )
    for option in ("--no-wait", "--serial"):
        if option in sys.argv:
            reasons.append(f"inventory: with {option} hosts would not wait for each other: run the command without it.")
    if not os.environ.get(EPOCH, "0").isdecimal():
        reasons.append(f"inventory: {EPOCH} = {os.environ[EPOCH]!r} is no number of seconds since 1970: correct it, or unset it.")
    if state.failed_hosts:
        reasons.append(unreachable(state))
    return reasons


def ask_hosts(state: State, ask: Callable[[PyinfraHost], T], names: Collection[str] | None = None) -> dict[str, T]:
    """Ask hosts for facts, all at the same time; the answers by host name, in the order of the inventory.

    :param names: whom to ask; default: every host
    """

    def in_context(host: PyinfraHost) -> T:
        with ctx_config.use(state.config.copy()), ctx_host.use(host):
            return ask(host)

    asked = [host for host in state.inventory if names is None or host.name in names]
    greenlets = {host.name: gevent.spawn(in_context, host) for host in asked}
    return {name: greenlet.get() for name, greenlet in greenlets.items()}
