"""The lock-step switch of all hosts: stop the heads, start the workers, start the heads, or take everything back.

Every host calls every operation here, in the same order: that is what makes pyinfra finish one on all hosts before the next
begins. None of them fails in the middle, since pyinfra runs nothing after a failure: what goes wrong is kept in the `Switch`,
the way back follows, and the last one, `conclude`, fails with the reason.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from typing import Any

from pyinfra import host, state
from pyinfra.api import FunctionCommand, StringCommand, operation
from pyinfra.api.host import Host
from pyinfra.api.state import State

from roles.base.operations import Commands
from roles.base.remote import HostError, complain, run, say
from roles.cluster.facts import SeenFact
from roles.cluster.look import current_switch
from roles.cluster.seen import BEFORE, VERIFIED
from roles.cluster.state import CURRENT, LLAMA_SERVER, RELEASES, RPC_SERVER, HostState, Service, Unit, generation
from roles.cluster.switch import Switch, fits, other_gpus

Ready = Mapping[str, Callable[[State, Host, Unit], float | None]]
"""Unit name → what waits until that unit serves, and raises `HostError` with the reason when it does not.

A head's returns the time at which the endpoint answered: seconds since 1970 by the head's clock.
"""


def fails(sentence: str) -> StringCommand:
    """A command that does nothing but fail with a sentence."""
    return StringCommand("echo", shlex.quote(sentence), ">&2; exit 1")


@operation()
def no_units() -> Commands:
    """Have neither service of ours, running or installed."""
    services = host.get_fact(SeenFact).services
    ours = [unit for unit in (LLAMA_SERVER, RPC_SERVER) if services.get(unit, Service()).ours]
    for unit in ours:
        yield StringCommand(_no_unit(unit))
    host.noop("there are none")


@operation()
def want() -> Commands:
    """This host is to run the units that its roles have offered, from the plan's release."""
    switch = current_switch()
    plan = switch.plan.hosts[host.name]
    switch.seen[host.name] = host.get_fact(SeenFact)
    releases = [other.release for other in switch.plan.hosts.values()]
    switch.wanted[host.name] = HostState(plan.release, plan.commit, generation(releases), switch.offered.get(host.name, {}))
    host.noop("looked at what runs")
    return
    yield


@operation()
def want_before() -> Commands:
    """This host is to run again what it ran before the last switch."""
    switch = current_switch()
    switch.seen[host.name] = host.get_fact(SeenFact)
    before = switch.seen[host.name].before
    if before is None:
        yield fails(f"{host.name}: there is no release before this one to go back to; nothing was changed.")
    elif not fits(switch.plan.hosts[host.name], before):
        yield fails(
            f"{host.name}: it had other endpoints, or was not what it is now, before the last switch; nothing was changed:"
            " make the inventory what it was then, or go back with deploys/cluster.py and the older commit."
        )
    elif other := other_gpus(switch.plan.hosts[host.name], before):
        yield fails(f"{host.name}: {other}; nothing was changed: go back with deploys/cluster.py and the older commit.")
    else:
        switch.wanted[host.name] = before
        host.noop("looked at what runs")


@operation()
def stop_heads() -> Commands:
    """Stop this host's llama-server if the switch concerns it, and what it should not run; the switch begins here."""
    switch = current_switch()
    if switch.obstacle:
        # While the run is only prepared, other hosts may not have been looked at yet.
        if state.is_executing:
            yield fails(switch.obstacle)
        return
    reasons = switch.head_reasons(host.name)
    if reasons and switch.seen[host.name].services.get(LLAMA_SERVER, Service()).file_digest:
        yield FunctionCommand(_careful, (switch, _stop_head, reasons), {})
    superfluous = switch.superfluous(host.name)
    if superfluous:
        yield FunctionCommand(_careful, (switch, _stop, superfluous), {})
    host.noop("nothing to stop")


@operation()
def start(unit: str, ready: Ready) -> Commands:
    """Switch and start this host's unit, if it is not what it should be."""
    switch = current_switch()
    reasons = [] if switch.missing or switch.failures else switch.reasons(host.name, unit)
    if reasons:
        yield FunctionCommand(_careful, (switch, _start, unit, ready, reasons), {})
    host.noop(f"{unit} is what it should be")


@operation()
def take_back(unit: str, ready: Ready) -> Commands:
    """After a failure: put this host's unit back to what answered last; with the workers' turn the heads are stopped."""
    switch = current_switch()
    if switch.failures and switch.changed(host.name):
        yield FunctionCommand(_take_back, (switch, unit, ready), {})
    host.noop("nothing to take back")


@operation()
def remember() -> Commands:
    """Keep the state that answered, and the one before it, for going back; remove what this host should not have."""
    switch = current_switch()
    if switch.missing or switch.failures:
        return
    for unit in switch.superfluous(host.name):
        yield StringCommand(_no_unit(unit))
    wanted, verified = switch.wanted[host.name], switch.seen[host.name].verified
    if wanted != verified:
        if verified is not None and switch.moves(host.name):
            yield _write(BEFORE, verified.to_json())
        yield _write(VERIFIED, wanted.to_json())
    host.noop("it is remembered already")


@operation()
def conclude() -> Commands:
    """Fail if the switch failed, with the reason and with what runs now."""
    switch = current_switch()
    if host.name in switch.failures:
        yield fails(f"{host.name}: {switch.failures[host.name]} {switch.outcome}")
    host.noop("the switch did not fail")


def _careful(state: State, host: Host, switch: Switch, step: Callable[..., None], *arguments: Any) -> None:
    """Take a step of the switch; whatever goes wrong in it, the run goes on to the way back."""
    if switch.failures:
        return
    try:
        step(state, host, switch, *arguments)
    except Exception as error:
        reason = str(error) if isinstance(error, HostError) else f"the switch broke off ({error or type(error).__name__})."
        switch.fail(host.name, reason)
        complain(host, f"{host.name}: {reason}")


def _stop_head(state: State, host: Host, switch: Switch, reasons: list[str]) -> None:
    say(host, f"{LLAMA_SERVER} stops: {'; '.join(reasons)}")
    stopped = _must(state, host, f"systemctl is-active --quiet {LLAMA_SERVER} && date +%s.%N; systemctl stop {LLAMA_SERVER}")
    if stopped:
        switch.stopped[host.name] = float(stopped[0])


def _stop(state: State, host: Host, switch: Switch, units: list[str]) -> None:
    for unit in units:
        say(host, f"{unit} stops: this host is not to have it any more")
        _must(state, host, f"systemctl stop {unit}")


def _start(state: State, host: Host, switch: Switch, unit: str, ready: Ready, reasons: list[str]) -> None:
    say(host, f"{unit} starts: {'; '.join(reasons)}")
    _run_unit(state, host, switch, unit, switch.wanted[host.name], ready)


def _take_back(state: State, host: Host, switch: Switch, unit: str, ready: Ready) -> None:
    """Put one unit back; where the state that answered before has none, ours is stopped."""
    verified = switch.back(host.name)
    try:
        if unit == RPC_SERVER and switch.is_ours(host.name, LLAMA_SERVER):
            _must(state, host, f"systemctl stop {LLAMA_SERVER} 2>/dev/null || true")
        if verified is not None and unit in verified.units:
            lost = [name for name in switch.stranded if name != host.name]
            if unit == LLAMA_SERVER and lost:
                raise HostError(f"{unit} was not started, because {', '.join(lost)} could not go back.")
            say(host, f"{unit} goes back to {verified.release}")
            _run_unit(state, host, switch, unit, verified, ready)
        elif switch.is_ours(host.name, unit):
            _must(state, host, f"systemctl disable --now {unit} 2>/dev/null || true")
        switch.restored.add(host.name)
    except Exception as error:
        switch.stranded[host.name] = str(error) or type(error).__name__
        complain(host, f"{host.name}: going back failed: {switch.stranded[host.name]}")


def _run_unit(state: State, host: Host, switch: Switch, unit: str, wanted: HostState, ready: Ready) -> None:
    """Put a unit in place, start it, and wait until it serves, as far as this host's roles know how to tell."""
    _install(state, host, unit, wanted)
    since = ready[unit](state, host, wanted.units[unit]) if unit in ready else None
    if since is None:
        return
    stopped = switch.stopped.get(host.name)
    say(host, "The endpoint answers." if stopped is None else f"The endpoint answers again; downtime {since - stopped:.1f} s.")


def _install(state: State, host: Host, unit: str, wanted: HostState) -> None:
    """Put the unit's text in place, point `current` at the release, and start; whether it serves is asked afterwards.

    What runs is stopped by its own unit, which knows how: another one's would leave a container behind.
    """
    _must(
        state,
        host,
        f"""set -e
cd {RELEASES}/{wanted.release}
systemctl stop {unit} 2>/dev/null || true
printf %s {shlex.quote(wanted.units[unit].text)} >/etc/systemd/system/{unit}.new
mv /etc/systemd/system/{unit}.new /etc/systemd/system/{unit}
ln -sfn {RELEASES}/{wanted.release} {CURRENT}.new
mv -T {CURRENT}.new {CURRENT}
systemctl daemon-reload
systemctl enable --quiet {unit}
systemctl restart --no-block {unit}""",
    )


def _must(state: State, host: Host, command: str) -> list[str]:
    """The output of a command that has to succeed."""
    answer = run(state, host, command)
    if not answer.ok:
        raise HostError(f"a step of the switch failed ({' '.join(answer.errors) or 'no reason was given'}).")
    return answer.output


def _no_unit(unit: str) -> str:
    return f"systemctl disable --now {unit}; rm -f /etc/systemd/system/{unit}; systemctl daemon-reload"


def _write(path: str, text: str) -> StringCommand:
    return StringCommand(f"printf %s {shlex.quote(text)} >{path}.new && mv {path}.new {path}")
