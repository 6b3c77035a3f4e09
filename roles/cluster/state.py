"""What a host runs and what it should run, compared. Pure.

A `HostState` is everything that the switch changes on a host: the release that `current` names and the units that start
from it. It is kept on the host as JSON, so that going back needs nothing but the host.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from hashlib import sha256

from roles.cluster.banner import Device, lacks

RELEASES = "/opt/llama.cpp/releases"
CURRENT = "/opt/llama.cpp/current"
IMAGE = "gpuquilt/llama.cpp"
"""The repository of our container images; the tag is the name of the release."""
MARK = "GPUQUILT_STATE"
"""The environment variable by which a process tells from which text its unit was started."""

RPC_SERVER = "rpc-server.service"
LLAMA_SERVER = "llama-server.service"
UNITS = (RPC_SERVER, LLAMA_SERVER)


@dataclass(frozen=True)
class Unit:
    """A service that a host is to run.

    :param text: of the unit file
    :param listens: ``address:port`` on which it is to listen
    :param endpoints: the RPC endpoints, ``address:port``, that it offers (a worker's own) or uses (a head's)
    :param backend: what it must compute with, by its own start-up log; empty where nobody knows, as of states that an older
        gpuquilt has written
    :param gpus: how many GPUs it must serve, no fewer and no more, likewise; 0 where nobody knows, where the inventory names
        them, or where the processors compute
    """

    text: str
    listens: str
    endpoints: tuple[str, ...]
    backend: str = ""
    gpus: int = 0


@dataclass(frozen=True)
class HostState:
    """What a host is to run.

    :param release: name of the folder below `RELEASES`
    :param commit: the llama.cpp commit of that release, 40 hexadecimal digits
    :param generation: the same on all hosts that were switched together, see `generation`
    :param units: by name
    """

    release: str
    commit: str
    generation: str
    units: Mapping[str, Unit]

    def to_json(self) -> str:
        """One line."""
        return json.dumps(asdict(self), sort_keys=True)

    @staticmethod
    def from_json(text: str) -> HostState | None:
        """None where there is no state, or one that cannot be read."""
        try:
            data = json.loads(text)
            units = {
                name: Unit(unit["text"], unit["listens"], tuple(unit["endpoints"]), unit.get("backend", ""), unit.get("gpus", 0))
                for name, unit in data["units"].items()
            }
            return HostState(data["release"], data["commit"], data["generation"], units)
        except (ValueError, KeyError, TypeError, AttributeError):
            return None


def generation(releases: Iterable[str]) -> str:
    """Names what all hosts run together, so that going back never mixes two switches.

    It does not say which host runs what: one more host of a kind that is there makes no new generation.

    :param releases: those of all hosts
    """
    return sha256(json.dumps(sorted(set(releases))).encode()).hexdigest()[:12]


def marked(text: str, release: str) -> str:
    """The unit's text with its mark: what a process that was started from it carries in its environment."""
    digest = sha256(f"{release}\n{text}".encode()).hexdigest()[:16]
    return text.replace("[Service]\n", f"[Service]\nEnvironment={MARK}={digest}\n", 1)


def mark_of(text: str) -> str:
    """The mark in a unit's text, empty where it has none."""
    for line in text.splitlines():
        if line.startswith(f"Environment={MARK}="):
            return line.rpartition("=")[2]
    return ""


@dataclass(frozen=True)
class Service:
    """A unit as systemd and the kernel show it.

    :param active: ActiveState is active and SubState is running
    :param enabled: it starts at boot
    :param ours: the unit file was written by us
    :param program: the file that the process runs, as /proc shows it
    :param mark: see `MARK`
    :param file_digest: SHA-256 of the unit file, empty when there is none
    :param reload_owed: the file is newer than what systemd has read
    :param devices: what a worker serves, as its journal says since its start; empty where that is gone
    """

    active: bool = False
    enabled: bool = False
    ours: bool = False
    program: str = ""
    mark: str = ""
    file_digest: str = ""
    reload_owed: bool = False
    devices: tuple[Device, ...] = ()


@dataclass(frozen=True)
class Seen:
    """What a host shows.

    :param current: name of the release that `CURRENT` points at
    :param services: unit name → what it shows
    :param connections: state and peer of the TCP connections of llama-server, e.g. ``("ESTAB", "198.18.77.11:50052")``
    :param verified: the state that answered last
    :param before: the one before
    """

    current: str = ""
    services: Mapping[str, Service] = field(default_factory=dict)
    connections: tuple[tuple[str, str], ...] = ()
    verified: HostState | None = None
    before: HostState | None = None


def reasons(unit: str, wanted: HostState, seen: Seen) -> list[str]:
    """Why a unit must be (re)started to be what is wanted; empty when it is."""
    planned = wanted.units[unit]
    service = seen.services.get(unit, Service())
    found = []
    if service.file_digest != sha256(planned.text.encode()).hexdigest():
        found.append("its unit differs")
    if service.reload_owed:
        found.append("systemd has not read its unit")
    if not service.enabled:
        found.append("it does not start at boot")
    if seen.current != wanted.release:
        found.append(f"current is {seen.current or 'nothing'}")
    if not service.active:
        found.append("it does not run")
    elif not service.program.startswith(f"{RELEASES}/{wanted.release}/") or service.program.endswith(" (deleted)"):
        found.append("the running process is another release")
    elif service.mark != mark_of(planned.text):
        found.append("the running process was started from another unit")
    elif lack := lacks(service.devices, planned.backend, planned.gpus):
        found.append(f"it {lack}")
    return found


def superfluous(wanted: HostState, seen: Seen) -> list[str]:
    """Units of ours that this host has and should not have: it is no worker, or no head, any more."""
    return [unit for unit, service in seen.services.items() if service.ours and unit not in wanted.units]


def lost_endpoints(endpoints: tuple[str, ...], seen: Seen) -> list[str]:
    """The endpoints to which the head holds no live connection: it would abort at its next request."""
    live = {peer for state, peer in seen.connections if state == "ESTAB"}
    return [endpoint for endpoint in endpoints if endpoint not in live]
