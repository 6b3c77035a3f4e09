"""The lock-step switch of all hosts: stop the heads, start the workers, start the heads, or take everything back.

Every host calls every operation here, in the same order: that is what makes pyinfra finish one on all hosts before the next
begins. None of them fails in the middle, since pyinfra runs nothing after a failure: what goes wrong is kept in the `Switch`,
the way back follows, and the last one, `conclude`, fails with the reason.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping

from pyinfra import host, state
from pyinfra.api import FunctionCommand, StringCommand, operation
from pyinfra.api.host import Host
from pyinfra.api.state import State

from roles.base.operations import Commands
from roles.base.remote import HostError, complain, run, say
from roles.cluster.facts import SeenFact
from roles.cluster.look import current_switch
from roles.cluster.seen import BEFORE, VERIFIED
from roles.cluster.state import CURRENT, LLAMA_SERVER, RELEASES, RPC_SERVER, HostState, generation, superfluous
from roles.cluster.switch import Switch

Ready = Mapping[str, Callable[[State, Host], float | None]]
"""Unit → what waits until it serves, and raises `HostError` with the reason when it does not.

A head's returns the time at which the endpoint answered: seconds since 1970 by the head's clock.
"""


def fails(sentence: str) -> StringCommand:
    """A command that does nothing but fail with a sentence."""
    return StringCommand("echo", shlex.quote(sentence), ">&2; exit 1")


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
    seen = host.get_fact(SeenFact)
    switch.seen[host.name] = seen
    if seen.before is None:
        yield fails(f"{host.name}: there is no release before this one to go back to; nothing was changed.")
        return
    switch.wanted[host.name] = seen.before
    host.noop("looked at what runs")


@operation()
def stop_heads() -> Commands:
    """Stop this host's llama-server if the switch concerns it, and units that it should not have; the switch begins here."""
    switch = current_switch()
    if switch.obstacle:
        # While the run is only prepared, other hosts may not have been looked at yet.
        if state.is_executing:
            yield fails(switch.obstacle)
        return
    wanted, seen = switch.wanted[host.name], switch.seen[host.name]
    reasons = switch.head_reasons(host.name)
    if reasons and LLAMA_SERVER in seen.services and seen.services[LLAMA_SERVER].file_digest:
        yield FunctionCommand(_stop_head, (switch, reasons), {})
    for unit in superfluous(wanted, seen):
        yield StringCommand(f"systemctl disable --now {unit} && rm /etc/systemd/system/{unit} && systemctl daemon-reload")
    host.noop("nothing to stop")


@operation()
def start_workers(ready: Ready) -> Commands:
    """Switch and start this host's RPC server, if it is not what it should be."""
    switch = current_switch()
    reasons = [] if switch.missing or switch.failures else switch.worker_reasons(host.name)
    if reasons:
        yield FunctionCommand(_start, (switch, RPC_SERVER, ready[RPC_SERVER], reasons), {})
    host.noop("its worker is what it should be")


@operation()
def start_heads(ready: Ready) -> Commands:
    """Switch and start this host's llama-server, if it is not what it should be."""
    switch = current_switch()
    reasons = [] if switch.missing or switch.failures else switch.head_reasons(host.name)
    if reasons:
        yield FunctionCommand(_start, (switch, LLAMA_SERVER, ready[LLAMA_SERVER], reasons), {})
    host.noop("its head is what it should be")


@operation()
def take_back_workers(ready: Ready) -> Commands:
    """After a failure: stop the heads that were switched and put their workers back to what answered last."""
    switch = current_switch()
    if switch.failures and switch.changed(host.name):
        yield FunctionCommand(_take_back, (switch, RPC_SERVER, ready.get(RPC_SERVER)), {})
    host.noop("nothing to take back")


@operation()
def take_back_heads(ready: Ready) -> Commands:
    """After a failure: put the heads back to what answered last."""
    switch = current_switch()
    if switch.failures and switch.changed(host.name):
        yield FunctionCommand(_take_back, (switch, LLAMA_SERVER, ready.get(LLAMA_SERVER)), {})
    host.noop("nothing to take back")


@operation()
def remember() -> Commands:
    """Keep the state that answered, and the one before it, for going back."""
    switch = current_switch()
    if switch.missing or switch.failures:
        return
    wanted, verified = switch.wanted[host.name], switch.seen[host.name].verified
    if wanted == verified:
        host.noop("it is remembered already")
        return
    if verified is not None and verified.generation != wanted.generation:
        yield _write(BEFORE, verified.to_json())
    yield _write(VERIFIED, wanted.to_json())


@operation()
def conclude() -> Commands:
    """Fail if the switch failed, with the reason and with what runs now."""
    switch = current_switch()
    if host.name in switch.failures:
        yield fails(f"{host.name}: {switch.failures[host.name]} {switch.outcome}")
    host.noop("the switch did not fail")


def _stop_head(state: State, host: Host, switch: Switch, reasons: list[str]) -> None:
    say(host, f"{LLAMA_SERVER} stops: {'; '.join(reasons)}")
    answer = run(state, host, f"systemctl is-active --quiet {LLAMA_SERVER} && date +%s.%N; systemctl stop {LLAMA_SERVER}")
    if answer.output:
        switch.stopped = float(answer.output[0])
    if not answer.ok:
        _failed(switch, host, f"{LLAMA_SERVER} could not be stopped ({' '.join(answer.errors)}).")


def _start(
    state: State,
    host: Host,
    switch: Switch,
    unit: str,
    ready: Callable[[State, Host], float | None],
    reasons: list[str],
) -> None:
    if switch.failures:
        return
    say(host, f"{unit} starts: {'; '.join(reasons)}")
    try:
        _install(state, host, unit, switch.wanted[host.name])
        since = ready(state, host)
    except HostError as error:
        _failed(switch, host, str(error))
        return
    if since is not None:
        _report_downtime(host, switch, since)


def _take_back(state: State, host: Host, switch: Switch, unit: str, ready: Callable[[State, Host], float | None] | None) -> None:
    """Put one unit back; without a state that answered before, there is nothing to run, and it is stopped."""
    verified = switch.seen[host.name].verified
    if unit == RPC_SERVER:
        run(state, host, f"systemctl stop {LLAMA_SERVER}")
    try:
        if verified is None:
            run(state, host, f"systemctl disable --now {unit}")
        elif unit in verified.units and ready is not None:
            say(host, f"{unit} goes back to {verified.release}")
            _install(state, host, unit, verified)
            since = ready(state, host)
            if since is not None:
                _report_downtime(host, switch, since)
        switch.restored.add(host.name)
    except HostError as error:
        switch.restored.discard(host.name)
        switch.stranded[host.name] = str(error)
        complain(host, f"{host.name}: going back failed: {error}")


def _install(state: State, host: Host, unit: str, wanted: HostState) -> None:
    """Put the unit's text in place, point `current` at the release, and start; whether it serves is asked afterwards."""
    script = f"""set -e
test -d {RELEASES}/{wanted.release}
printf %s {shlex.quote(wanted.units[unit])} >/etc/systemd/system/{unit}.new
mv /etc/systemd/system/{unit}.new /etc/systemd/system/{unit}
ln -sfn {RELEASES}/{wanted.release} {CURRENT}.new
mv -T {CURRENT}.new {CURRENT}
systemctl daemon-reload
systemctl enable --quiet {unit}
systemctl restart --no-block {unit}"""
    answer = run(state, host, script)
    if not answer.ok:
        raise HostError(
            f"{unit} of {wanted.release} could not be put in place ({' '.join(answer.errors) or 'its release is gone'})."
        )


def _report_downtime(host: Host, switch: Switch, since: float) -> None:
    if switch.stopped is None:
        say(host, "The endpoint answers.")
    else:
        say(host, f"The endpoint answers again; downtime {since - switch.stopped:.1f} s.")


def _failed(switch: Switch, host: Host, reason: str) -> None:
    switch.fail(host.name, reason)
    complain(host, f"{host.name}: {reason}")


def _write(path: str, text: str) -> StringCommand:
    return StringCommand(f"printf %s {shlex.quote(text)} >{path}.new && mv {path}.new {path}")
