"""The reboots that hosts owe once they are prepared: listed, refused, or done, one host at a time.

Every host calls every operation here, in the same order. Whether a reboot is owed is decided from what the hosts show when
the operations run, so that a run after any broken run finishes what is left, and a second one reboots nobody.
"""

from __future__ import annotations

from pyinfra import host, state
from pyinfra.api import FunctionCommand, operation
from pyinfra.api.host import Host
from pyinfra.api.state import State

from roles.base import reboot as base
from roles.base.operations import Commands
from roles.base.remote import HostError, complain, say
from roles.cluster.look import current_reboots, stand
from roles.cluster.operations import fails
from roles.cluster.reboots import Reboots

LONGEST = 24 * 3600
"""Seconds that a host and its virtual machines may take in all; each of them has its own limit."""


@operation()
def look_again() -> Commands:
    """Ask this host anew what it shows: what was prepared may have made a reboot owed."""
    # While the run is only prepared, nothing has been done yet, and the plan knows all.
    if state.is_executing:
        current_reboots().standing[host.name] = stand(state, host)
    host.noop("looked at what it shows now")
    return
    yield


@operation()
def refuse() -> Commands:
    """Fail where a reboot is owed and this run must not or cannot do it; until here nobody was rebooted."""
    objections = current_reboots().objections(host.name) if state.is_executing else []
    if objections:
        yield fails("\n".join(objections))
    else:
        host.noop("no reboot is owed that could not be done")


@operation()
def reboot(hypervisor: bool) -> Commands:
    """Reboot this host if it owes that; call it with `_serial`, so that one comes after the other.

    :param hypervisor: the turn of the hypervisors, or of the others, which a hypervisor's reboot may have freed of theirs
    """
    reboots = current_reboots()
    mine = reboots.is_hypervisor(host.name) == hypervisor and not reboots.under_way
    if mine and reboots.is_due(host.name) and state.is_executing:
        reboots.standing[host.name] = stand(state, host)
    if mine and reboots.is_due(host.name) and not reboots.objections(host.name):
        yield FunctionCommand(_reboot, (reboots,), {})
    else:
        host.noop("no reboot is owed")


def _reboot(state: State, host: Host, reboots: Reboots) -> bool:
    reboots.under_way = host.name
    try:
        _reboot_it(state, host, reboots)
        _await_guests(state, host, reboots)
    except HostError as error:
        others = [other for other in reboots.standing if other != host.name and reboots.is_due(other)]
        rest = f" {', '.join(others)}: not rebooted, though owed." if others else ""
        complain(host, f"{host.name}: {error}{rest}")
        return False
    reboots.under_way = ""
    return True


def _reboot_it(state: State, host: Host, reboots: Reboots) -> None:
    standing = reboots.standing[host.name]
    silenced = reboots.silenced(host.name)
    down = f"; until it is back, the endpoint does not have {' and '.join(silenced)}" if silenced else ""
    say(host, f"reboots: {standing.machine.reboot}{down}")
    base.reboot(state, host, standing.boot_id, reboots.hosts[host.name].settings.reboot_timeout)
    say(host, "is back")
    reboots.standing[host.name] = stand(state, host)
    if reboots.owes(host.name):
        raise HostError(
            f"it was rebooted, and that has not helped ({reboots.standing[host.name].machine.reboot}): see `journalctl -b` there"
            " for what failed, then run again."
        )
    if reboots.standing[host.name].machine.refusals:
        raise HostError(" ".join(reboots.standing[host.name].machine.refusals))


def _await_guests(state: State, host: Host, reboots: Reboots) -> None:
    """Connect anew to the virtual machines of a hypervisor that has rebooted.

    That one answers over a new connection is proof enough that it is back. Its boot id may be the old one: some hypervisors
    write the memory of their guests to disk, and wake them again.
    """
    guests = [(state.inventory.get_host(name), reboots.hosts[name].settings.reboot_timeout) for name in reboots.guests(host.name)]
    for guest, _ in guests:
        base.forget(guest)
    away = [
        guest.name for guest, seconds in guests if base.wait(state, guest, seconds, _any, "starts with its hypervisor") is None
    ]
    if away:
        raise HostError(
            f"it was rebooted, and {' and '.join(away)} did not come back with it: start what is off, let it start with its"
            " hypervisor from now on (autostart), then run again."
        )


def _any(life: base.Life) -> bool:
    return True
