"""Preflight: look at all hosts and say what would be done, and what speaks against it. It leaves nothing on a host.

On this computer: the file that `plan_json` names.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from weakref import WeakSet

from pyinfra.api.state import State
from pyinfra.context import ctx_state
from rich.console import Console

from roles import llama_server, model, nvidia, rpc_server
from roles.base.facts import IdentityFact
from roles.base.machine import Identity
from roles.base.settings import HostSettings, RoleSettings, read_settings
from roles.cluster.look import Check, Look, MachineCheck, ask_hosts, examine, inventory_data
from roles.cluster.plan import HostPlan
from roles.cluster.state import LLAMA_SERVER, RPC_SERVER, HostState, Unit, generation
from roles.cluster.switch import planned_units
from roles.llama_cpp.container import program
from roles.llama_cpp.facts import ReleasesFact
from roles.llama_cpp.manifest import Manifest
from roles.llama_server import unit as llama_server_unit
from roles.preflight.record import write
from roles.preflight.report import report
from roles.preflight.settings import Settings
from roles.preflight.steps import steps
from roles.rpc_server import unit as rpc_server_unit

__all__ = ["Settings", "show"]

_begun: WeakSet[State] = WeakSet()


def show(models: Sequence[type[RoleSettings]], checks: Sequence[Check], machine_checks: Sequence[MachineCheck]) -> None:
    """Print what deploys/cluster.py would do with the same models and checks, and end the run.

    Deploy code runs once per host; the first to come speaks for all.

    :raises SystemExit: always; the exit code is 1 where something is refused, and 0 otherwise. Without it pyinfra would ask
        whether to go on, although there is nothing to be done.
    """
    state = ctx_state.get()
    if state in _begun:
        return
    _begun.add(state)
    seen = examine([*models, Settings], checks, machine_checks)
    problems = [line for name in _files(state) for line in write(name, seen.plan)]
    refusals = (*seen.plan.refusals, *problems)
    # The line may hold pyinfra's spinner, which is removed with the next that is written there.
    sys.stderr.flush()
    Console(highlight=False).print(report(replace(seen.plan, refusals=refusals), seen.hosts, _steps(state, seen)))
    sys.exit(1 if refusals else 0)


def _files(state: State) -> list[str]:
    """The files that the plan is to be written to, whatever else is wrong with the settings."""
    keys = Settings.inventory_keys()
    data = [
        replace(host, data={key: host.data[key] for key in keys & host.data.keys()}) for host in inventory_data(state.inventory)
    ]
    settings, _ = read_settings([Settings], data)
    names = [found[Settings].plan_json for found in settings.values()]
    return [name for name in dict.fromkeys(names) if name is not None]


def _steps(state: State, seen: Look) -> dict[str, tuple[str, ...]]:
    """Host → what would be done there about llama.cpp and what it is built with; empty where that was not looked at, since
    something is refused.
    """
    switch = seen.switch
    if switch.plan.hosts.keys() != switch.seen.keys():
        return {}
    releases = ask_hosts(state, lambda host: host.get_fact(ReleasesFact), switch.seen)
    containers = [name for name, plan in switch.plan.hosts.items() if plan.runtime == "docker"]
    users = ask_hosts(state, lambda host: host.get_fact(IdentityFact), containers)
    toolkits = ask_hosts(
        state, lambda host: nvidia.toolkit_steps(switch.plan.hosts[host.name], seen.settings[host.name]), switch.seen
    )
    together = generation(plan.release for plan in switch.plan.hosts.values())
    for name, plan in switch.plan.hosts.items():
        units = _units(plan, seen.settings[name], releases[name].get(plan.release), users.get(name))
        switch.wanted[name] = HostState(plan.release, plan.commit, together, units)
    return {name: (*toolkits[name], *steps(switch, name, releases[name])) for name in switch.seen}


def _units(plan: HostPlan, settings: HostSettings, manifest: Manifest | None, user: Identity | None) -> dict[str, Unit]:
    """What a host would offer to the switch; of a release that is still to come nothing is known but the endpoints."""
    units = {unit: Unit("", "", endpoints) for unit, endpoints in planned_units(plan).items()}
    if manifest and plan.worker and (found := program(manifest, rpc_server_unit.TARGET, user)):
        units[RPC_SERVER] = rpc_server_unit.unit(plan, settings[rpc_server.Settings], found)
    if manifest and plan.head and (found := program(manifest, llama_server_unit.TARGET, user)):
        files = model.files(settings[model.Settings])
        units[LLAMA_SERVER] = llama_server_unit.unit(plan, settings[llama_server.Settings], found, files)
    return units
