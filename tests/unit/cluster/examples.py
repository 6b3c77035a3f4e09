"""A cluster of two workers and a head, and what one changes about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import date
from hashlib import sha256
from ipaddress import IPv4Address
from typing import Any

from roles.base.machine import Machine
from roles.cluster.plan import Host, Plan, make_plan
from roles.cluster.settings import Settings
from roles.cluster.state import RELEASES, HostState, Seen, Service, Unit, generation, mark_of, marked
from roles.cluster.switch import planned_units
from roles.cluster.toolkit import ComputePlan
from roles.gpus import lspci
from roles.gpus.catalog import load
from roles.gpus.driver import Drivers, Flavour, Nvidia
from roles.gpus.gpu import Gpu, gpus_of

OLDER = "1" * 40
NEWER = "2" * 40
NETWORK = "192.0.2.0/24"
TODAY = date(2026, 12, 1)
NO_DRIVERS = Drivers()
CPU = ComputePlan("cpu", None, "debian:13", "debian:13")

# What lspci prints of one card each.
PASCAL = "01:00.0 VGA compatible controller [0300]: NVIDIA Corporation GP102 [GeForce GTX 1080 Ti] [10de:1b06] (rev a1)"
TURING = "02:00.0 VGA compatible controller [0300]: NVIDIA Corporation TU116 [GeForce GTX 1660 Ti] [10de:2182] (rev a1)"
ADA = "03:00.0 VGA compatible controller [0300]: NVIDIA Corporation AD102 [GeForce RTX 4090] [10de:2684] (rev a1)"
BLACKWELL = "05:00.0 VGA compatible controller [0300]: NVIDIA Corporation GB206 [GeForce RTX 5060 Ti] [10de:2d04] (rev a1)"
KEPLER = "06:00.0 VGA compatible controller [0300]: NVIDIA Corporation GK104 [GeForce GTX 680] [10de:1180] (rev a1)"
ARC = "07:00.0 VGA compatible controller [0300]: Intel Corporation DG2 [Arc A770] [8086:56a0] (rev 08)"
NAVI = (
    "08:00.0 VGA compatible controller [0300]: Advanced Micro Devices, Inc. [AMD/ATI] Navi 48 [Radeon RX 9070/9070 XT]"
    " [1002:7550] (rev c0)"
)
NAVI_22 = "0b:00.0 VGA compatible controller [0300]: Advanced Micro Devices, Inc. [AMD/ATI] Navi 22 [1002:73df] (rev c1)"
INTEGRATED = "00:02.0 Display controller [0380]: Intel Corporation AlderLake-S GT1 [8086:4680] (rev 0c)"


def machine(*addresses: str, **changes: Any) -> Machine:
    """A Debian 13 host with nothing wrong with it."""
    good: dict[str, Any] = {
        "root": True,
        "sudo": "yes",
        "account": "",
        "architecture": "x86_64",
        "boot_id": addresses[0] if addresses else "",
        "systemd": True,
        "os_id": "debian",
        "os_version": "13",
        "os_name": "Debian GNU/Linux 13 (trixie)",
        "cpu_level": "v3",
    }
    return Machine(addresses=tuple(IPv4Address(address) for address in addresses), **good | changes)


def host(name: str, groups: Iterable[str], there: Machine, wants_sudo: bool = False, **settings: Any) -> Host:
    """A host of the inventory; settings that are not given are the cluster's."""
    given: dict[str, Any] = {"commit": NEWER, "network": NETWORK, **settings}
    return Host(name, frozenset(groups), Settings(**given), there, wants_sudo)


def gpus(*texts: str, driver: str | None = None) -> tuple[Gpu, ...]:
    """The GPUs in what lspci prints.

    :param driver: the kernel driver that holds them
    """
    found = gpus_of(lspci.parse("\n".join(texts)), load())
    return tuple(replace(gpu, driver=driver) if driver else gpu for gpu in found)


def loaded(version: str, flavour: Flavour | None = None, **more: Any) -> Drivers:
    """NVIDIA's driver runs, and is on disk."""
    return Drivers(nvidia=Nvidia(loaded=version, loaded_flavour=flavour, on_disk=version, on_disk_flavour=flavour), **more)


def gpu_worker(
    *texts: str,
    name: str = "w1",
    address: str = "192.0.2.11",
    system: str = "debian13",
    driver_of_gpus: str | None = None,
    drivers: Drivers = NO_DRIVERS,
    **settings: Any,
) -> Host:
    """A worker with the GPUs in what lspci prints, each in an IOMMU group of its own.

    :param system: ``ID`` and ``VERSION_ID`` of its os-release
    """
    os_id = system.rstrip("0123456789.")
    there = machine(address, os_id=os_id, os_version=system.removeprefix(os_id))
    found = gpus(*texts, driver=driver_of_gpus)
    devices = tuple(
        replace(device, driver=driver_of_gpus, iommu_group=group) for group, device in enumerate(lspci.parse("\n".join(texts)))
    )
    return replace(host(name, ["workers"], there, **settings), gpus=found, drivers=drivers, devices=devices)


def refusals_of(*hosts: Host) -> list[str]:
    """Why these hosts and a head cannot be planned."""
    return list(plan_of([*hosts, head()]).refusals)


def plan_of(hosts: list[Host]) -> Plan:
    """The plan for these hosts, on the day of these examples and with the catalog that is shipped."""
    return make_plan(hosts, TODAY, load())


def worker(name: str = "w1", address: str = "192.0.2.11", **settings: Any) -> Host:
    """A worker with nothing wrong with it."""
    return host(name, ["workers"], machine(address), **settings)


def head(name: str = "head", address: str = "192.0.2.10", **settings: Any) -> Host:
    """A head with nothing wrong with it."""
    return host(name, ["heads"], machine(address), **settings)


def cluster(**settings: Any) -> list[Host]:
    """Two workers and a head; the settings are those of all."""
    return [worker(**settings), worker("w2", "192.0.2.12", **settings), head(**settings)]


def good_plan(**settings: Any) -> Plan:
    """The plan of `cluster`."""
    plan = plan_of(cluster(**settings))
    assert plan.refusals == ()
    return plan


def offered(name: str, release: str, endpoints: tuple[str, ...] = ()) -> Unit:
    """A unit as short as can be."""
    return Unit(marked(f"[Unit]\nDescription={name}\n[Service]\nExecStart=/bin/true\n", release), "192.0.2.1:1", endpoints)


def wanted(plan: Plan) -> dict[str, HostState]:
    """What the hosts of a plan are to run, with units as short as can be."""
    releases = [there.release for there in plan.hosts.values()]
    states = {}
    for name, there in plan.hosts.items():
        units = {unit: offered(unit, there.release, endpoints) for unit, endpoints in planned_units(there).items()}
        states[name] = HostState(there.release, there.commit, generation(releases), units)
    return states


def running(state: HostState, connections: Iterable[str] = (), before: HostState | None = None) -> Seen:
    """What a host shows that runs a state, connected to some peers."""
    return Seen(
        current=state.release,
        services={name: service(state.release, unit.text) for name, unit in state.units.items()},
        connections=tuple(("ESTAB", peer) for peer in connections),
        verified=state,
        before=before,
    )


def service(release: str, text: str) -> Service:
    """A unit that runs as it should."""
    return Service(
        active=True,
        enabled=True,
        ours=True,
        program=f"{RELEASES}/{release}/bin/program",
        mark=mark_of(text),
        file_digest=sha256(text.encode()).hexdigest(),
    )
