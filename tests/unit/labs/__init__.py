"""Whole labs: an inventory, what each machine of it said, and the plan for all.

Each folder is one lab: ``inventory.py`` as a user writes it, ``HOST.txt`` with what each command that looks at a host printed,
and ``plan.yaml``, everything that is planned. After a change that was meant, run ``python -m tests.unit.labs`` and read the
difference.
"""

from __future__ import annotations

import runpy
from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

from roles.base import machine
from roles.base.settings import HostData, read_settings
from roles.cluster.plan import Host, Plan, as_data, make_plan
from roles.cluster.settings import Settings
from roles.gpus import lspci, nvidia, sysfs
from roles.gpus.catalog import load
from roles.gpus.host import see

HERE = Path(__file__).parent
LABS = sorted(path.parent.name for path in HERE.glob("*/inventory.py"))
TODAY = date(2026, 12, 1)
GROUPS = ("hypervisors", "workers", "heads")


def data_of(lab: str) -> list[HostData]:
    """What the inventory says of each host, in its order."""
    said = runpy.run_path(str(HERE / lab / "inventory.py"))
    names, shared = said["all"]
    own: dict[str, Mapping[str, Any]] = dict(names)
    groups = {name: {group for group in GROUPS for other, _ in said.get(group, ()) if other == name} for name in own}
    return [HostData(name, frozenset(groups[name]), {**shared, **data}) for name, data in own.items()]


@cache
def recorded(lab: str, host: str) -> Mapping[str, list[str]]:
    """What a host said: ``machine``, ``sysfs``, ``lspci`` or ``drivers`` → the lines of its answer."""
    answers: dict[str, list[str]] = {}
    for line in (HERE / lab / f"{host}.txt").read_text().splitlines():
        if line.startswith("--- "):
            answers[line.removeprefix("--- ")] = said = []
        else:
            said.append(line)
    return answers


def plan(lab: str, **shared: Any) -> Plan:
    """The plan for a lab.

    :param shared: settings of all hosts beside those of the inventory
    """
    hosts = [replace(host, data={**host.data, **shared}) for host in data_of(lab)]
    settings, problems = read_settings([Settings], hosts, frozenset(key for host in hosts for key in host.data))
    assert problems == []
    return make_plan([_host(lab, host, settings[host.name][Settings]) for host in hosts], TODAY, load())


def _host(lab: str, host: HostData, settings: Settings) -> Host:
    said = recorded(lab, host.name)
    drivers = nvidia.parse(said["drivers"])
    devices = sysfs.parse(said["sysfs"])
    gpus = see(devices, lspci.parse("\n".join(said["lspci"])), drivers, load())
    there = machine.parse(said["machine"])
    return Host(host.name, host.groups, settings, there, bool(host.data.get("_sudo")), tuple(gpus), drivers, tuple(devices))


def readable(data: Any) -> Any:
    """The plan as data without what is empty or not known, of which a person would see little else."""
    if isinstance(data, dict):
        return {key: readable(value) for key, value in data.items() if value not in (None, "", [], {})}
    return [readable(item) for item in data] if isinstance(data, list) else data


def wanted(lab: str) -> Any:
    """The plan for a lab, as plan.yaml is to hold it."""
    return readable(as_data(plan(lab)))
