"""Putting the guard in place and taking it away."""

from __future__ import annotations

from hashlib import sha256
from posixpath import dirname

from pyinfra import host
from pyinfra.api import StringCommand, operation

from roles.base.operations import Commands, written
from roles.cluster.plan import HostPlan
from roles.firewall.facts import GuardFact
from roles.firewall.guard import Guard
from roles.firewall.rules import DROP_IN, RULES, TABLE, UNIT, Access, access, rules, units


@operation()
def guard(plan: HostPlan) -> Commands:
    """The RPC port answers the worker's heads alone: now, after a boot, and after a restart of nftables or Docker."""
    yield from _guard(host.get_fact(GuardFact), access(plan))


@operation()
def guard_both(plan: HostPlan) -> Commands:
    """As `guard`, and what is guarded now stays guarded: a server on another port may serve there, for another head."""
    seen = host.get_fact(GuardFact)
    yield from _guard(seen, seen.access | access(plan))


def _guard(seen: Guard, wanted_access: Access) -> Commands:
    wanted = {RULES: rules(wanted_access), **units()}
    outdated = [path for path, text in wanted.items() if seen.files.get(path) != sha256(text.encode()).hexdigest()]
    for path in outdated:
        yield written(path, wanted[path])
    if seen.reload_owed or set(outdated) - {RULES}:
        yield StringCommand("systemctl daemon-reload")
    if not seen.enabled:
        yield StringCommand(f"systemctl enable --quiet {UNIT}")
    if RULES in outdated or not seen.same:
        yield StringCommand(f"systemctl reload-or-restart {UNIT}")
    host.noop("the port is guarded")


@operation()
def unguard() -> Commands:
    """Take away what `guard` left, unless an RPC server still runs that needs it."""
    seen = host.get_fact(GuardFact)
    if seen.served:
        host.noop("the RPC server still runs")
        return
    if set(seen.files) - {RULES}:
        remove = f"rm -f {' '.join(units())}; rmdir --ignore-fail-on-non-empty {dirname(DROP_IN)}"
        yield StringCommand(f"systemctl disable --quiet --now {UNIT}; {remove}; systemctl daemon-reload")
    if RULES in seen.files:
        yield StringCommand(f"rm {RULES}")
    if seen.loaded:
        yield StringCommand(f"nft delete table {TABLE}")
    host.noop("nothing is guarded")
