"""Taking back what the other roles have put on hosts: what, and whether that can be done. It leaves nothing of its own."""

from __future__ import annotations

from collections.abc import Mapping
from weakref import WeakKeyDictionary

from pyinfra.api.exceptions import PyinfraError
from pyinfra.api.host import Host
from pyinfra.api.state import State
from pyinfra.context import ctx_config, ctx_host, ctx_state

from roles.base.facts import MachineFact
from roles.base.machine import Machine
from roles.base.settings import HostData, once, read_settings
from roles.cluster.look import ask_hosts, inventory_data
from roles.cluster.plan import host_problems
from roles.removal.settings import Name, Settings

__all__ = ["Settings", "asked"]

_asked: WeakKeyDictionary[State, Mapping[str, frozenset[Name]]] = WeakKeyDictionary()
"""Host → what is named for it."""


def asked() -> frozenset[Name]:
    """What is named for this host; hosts that ``--limit`` leaves out are left alone.

    :raises PyinfraError: nothing or something else is named, or a host is none that we could do it on
    """
    state = ctx_state.get()
    if state not in _asked:
        _asked[state] = _ask(state)
    return _asked[state][ctx_host.get().name]


def _ask(state: State) -> Mapping[str, frozenset[Name]]:
    keys = Settings.inventory_keys()
    active = {host.name for host in state.inventory.get_active_hosts()}
    data = [
        HostData(host.name, host.groups, {key: host.data[key] for key in keys & host.data.keys()})
        for host in inventory_data(state.inventory)
        if host.name in active
    ]
    settings, problems = read_settings([Settings], data)
    if not any(found[Settings].remove for found in settings.values()) and not problems:
        problems.append(
            f"inventory: nothing is named: say with --data remove=NAME {Settings.model_fields['remove'].description}."
        )
    for name, (machine, wants_sudo) in ask_hosts(state, _machine, active).items():
        problems += host_problems(name, machine, wants_sudo, serves=False)
    if problems:
        raise PyinfraError("nothing was removed, because:\n" + "\n".join(f"    {line}" for line in once(problems)))
    return {name: frozenset(found[Settings].remove) for name, found in settings.items()}


def _machine(host: Host) -> tuple[Machine, bool]:
    return host.get_fact(MachineFact, _sudo=False), bool(host.data.get("_sudo", ctx_config.get().SUDO))
