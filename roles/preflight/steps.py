"""What deploys/cluster.py would do about llama.cpp on a host, in words. Pure."""

from __future__ import annotations

from collections.abc import Collection

from roles.cluster.state import Service
from roles.cluster.switch import Switch, planned_units


def steps(switch: Switch, name: str, releases: Collection[str]) -> tuple[str, ...]:
    """What would be done on a host, in order.

    :param switch: it knows what all hosts show and what they are to run
    :param releases: those that are on the host
    """
    plan, seen = switch.plan.hosts[name], switch.seen[name]
    found = []
    if plan.release not in releases:
        what = f"the image of {plan.release}" if plan.profile.in_container else plan.release
        found.append(f"build {what}" if plan.builds else f"get {what} from {plan.builder}")
    switched = seen.current != plan.release
    if switched:
        found.append(f"switch from {seen.current} to {plan.release}" if seen.current else f"switch to {plan.release}")
    for unit in planned_units(plan):
        reasons = switch.reasons(name, unit)
        if reasons:
            verb = "restart" if seen.services.get(unit, Service()).active else "start"
            found.append(f"{verb} {unit}" if switched else f"{verb} {unit}: {'; '.join(reasons)}")
    found += [f"stop and remove {unit}" for unit in switch.superfluous(name)]
    return tuple(found) or (f"nothing: {plan.release} runs already",)
