"""The hosts under test: what each of them should be, and a way to ask it what it is."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, TypeVar

from testinfra.host import Host  # type: ignore[import-untyped]

from roles.base import machine
from roles.base.settings import HostData, HostSettings, RoleSettings, read_settings
from roles.cluster import plan as planning
from roles.cluster.plan import HostPlan, make_plan
from roles.cluster.provision import MachinePlan
from roles.cluster.settings import Settings
from roles.cluster.state import LLAMA_SERVER, RELEASES, RPC_SERVER
from roles.gpus import lspci, nvidia, sysfs
from roles.gpus.catalog import load
from roles.gpus.gpu import Gpu
from roles.gpus.host import see
from roles.llama_server.settings import Settings as LlamaServerSettings
from roles.model.settings import Settings as ModelSettings
from roles.rpc_server.settings import Settings as RpcServerSettings
from tests.verify import inventory, reading
from tests.verify.inventory import Unusable
from tests.verify.reading import Socket

S = TypeVar("S", bound=RoleSettings)

MODELS: list[type[RoleSettings]] = [Settings, RpcServerSettings, LlamaServerSettings, ModelSettings]

EVERY_NETWORK = "0.0.0.0"


class Unanswered(Exception):
    """A host did not do what it was asked; the text names it and says why."""


@dataclass(frozen=True)
class Subject:
    """One host under test.

    :param plan: what it should be
    :param machine: what it should be before anything of ours runs on it
    """

    plan: HostPlan
    machine: MachinePlan
    settings: HostSettings
    connection: Host

    @property
    def name(self) -> str:
        return self.plan.name

    def __str__(self) -> str:
        return self.name

    def ask(self, command: str) -> str:
        """Run a command on the host, as root.

        :return: what it wrote to its standard output
        :raises Unanswered: it failed
        """
        return _ask(self.name, self.connection, command)

    @property
    def folder(self) -> str:
        """Of the release that is planned."""
        return f"{RELEASES}/{self.plan.release}"

    def manifest(self) -> dict[str, Any]:
        """What was written down when that release was built."""
        manifest: dict[str, Any] = json.loads(self.ask(f"cat {self.folder}/manifest.json"))
        return manifest

    @property
    def docker(self) -> bool:
        """Whether its services run in containers."""
        return self.plan.runtime == "docker"

    @property
    def nvidia(self) -> list[Gpu]:
        """NVIDIA's GPUs that are to compute there."""
        return [gpu for gpu in self.machine.gpus if gpu.vendor == "nvidia"]

    def driver(self) -> reading.Driver:
        """NVIDIA's driver, as it is there."""
        return reading.driver(self.ask(reading.DRIVER_COMMAND))

    def sockets(self) -> list[Socket]:
        """All its TCP sockets."""
        return reading.sockets(self.ask(reading.SOCKETS_COMMAND))


@dataclass(frozen=True)
class Service:
    """One of our units on one host.

    :param first: how it was when verification began
    :param since: when that was, by ``time.monotonic()``
    """

    subject: Subject
    unit: str
    first: reading.Service
    since: float

    def __str__(self) -> str:
        return f"{self.subject}-{self.unit}"

    @property
    def reached_at(self) -> str:
        """The address and port at which others in the cluster network reach it."""
        return f"{self.subject.plan.address}:{self._port}"

    @property
    def listens_on(self) -> str:
        """The address and port that it should listen on."""
        settings: RpcServerSettings | LlamaServerSettings
        if self.unit == RPC_SERVER:
            settings = self.subject.settings[RpcServerSettings]
        else:
            settings = self.subject.settings[LlamaServerSettings]
        everywhere = EVERY_NETWORK if settings.listen_on_every_network else None
        return f"{settings.host or everywhere or self.subject.plan.address}:{self._port}"

    @property
    def _port(self) -> int:
        return self.subject.plan.rpc_port if self.unit == RPC_SERVER else self.subject.plan.http_port

    def look(self) -> reading.Service:
        """How it is now."""
        return reading.service(self.subject.ask(reading.service_command(self.unit)))

    def running(self) -> reading.Service:
        """How it is now, of a service that runs."""
        seen = self.look()
        running = seen.running
        assert running, f"{self.subject}: {self.unit} does not run ({seen.state}); see `journalctl -u {self.unit}` there."
        return seen


@dataclass(frozen=True)
class Cluster:
    """Everything under test.

    :param machines: every host, in the order of the inventory
    """

    commit: str
    machines: list[Subject]
    services: list[Service]

    @property
    def driven(self) -> list[Subject]:
        """The hosts that NVIDIA's GPUs are to compute on."""
        return [machine for machine in self.machines if machine.nvidia]

    @property
    def docker(self) -> list[Subject]:
        """The hosts whose services run in containers."""
        return [machine for machine in self.machines if machine.docker]

    @property
    def contained(self) -> list[Service]:
        """Those services."""
        return [service for service in self.services if service.subject.docker]

    @property
    def workers(self) -> list[Service]:
        return [service for service in self.services if service.unit == RPC_SERVER]

    @property
    def heads(self) -> list[Service]:
        return [service for service in self.services if service.unit == LLAMA_SERVER]


@dataclass
class Connections:
    """The ways into the hosts, and what must be closed in the end.

    :param folder: holds the sockets of shared SSH connections
    """

    folder: Path
    opened: list[tuple[HostData, Path]] = field(default_factory=list)

    def open(self, host: HostData) -> Host:
        # Not its name: the path of a socket has at most 107 characters.
        control = self.folder / str(len(self.opened))
        self.opened.append((host, control))
        return inventory.connect(host, control)

    def close(self) -> None:
        for host, control in self.opened:
            inventory.disconnect(host, control)


def look(source: str, overrides: Sequence[str], connections: Connections) -> Cluster:
    """Read the inventory, look at its hosts, make the plan, and note how the services are.

    :raises Unusable: the inventory cannot be read, or there is no plan
    :raises Unanswered: a host cannot be reached as the inventory says
    """
    hosts = inventory.read(source, overrides)
    settings, problems = read_settings(MODELS, hosts, foreign=frozenset(key for host in hosts for key in host.data))
    _refuse(problems)
    opened = {host.name: connections.open(host) for host in hosts}
    seen = []
    for host in hosts:
        commands = (machine.COMMAND, sysfs.look(), sysfs.ask_lspci(), nvidia.look())
        there, pci, said, drivers = (_ask(host.name, opened[host.name], command) for command in commands)
        driven = nvidia.parse(drivers.splitlines())
        seen.append(
            planning.Host(
                name=host.name,
                groups=host.groups,
                settings=settings[host.name][Settings],
                machine=machine.parse(there.splitlines()),
                wants_sudo=bool(host.data.get("_sudo")),
                gpus=tuple(see(sysfs.parse(pci.splitlines()), lspci.parse(said), driven, load())),
                drivers=driven,
            )
        )
    plan = make_plan(seen, date.today(), load())
    _refuse(plan.refusals)
    subjects = [Subject(there, plan.machines[name], settings[name], opened[name]) for name, there in plan.hosts.items()]
    return Cluster(plan.commit, subjects, [service for subject in subjects for service in _services(subject)])


def _services(subject: Subject) -> list[Service]:
    planned = [(RPC_SERVER, subject.plan.worker), (LLAMA_SERVER, subject.plan.head)]
    return [
        Service(subject, unit, reading.service(subject.ask(reading.service_command(unit))), time.monotonic())
        for unit, wanted in planned
        if wanted
    ]


def _refuse(problems: Sequence[str]) -> None:
    if problems:
        raise Unusable("\n".join(problems))


def _ask(name: str, connection: Host, command: str) -> str:
    try:
        done = connection.run(command)
    except RuntimeError as error:
        # testinfra raises this when SSH itself fails, with the whole result as its argument.
        why = _last(error.args[0].stderr)
        raise Unanswered(f"{name}: cannot be reached by SSH ({why}): start it, or take it out of the inventory.") from None
    if done.rc != 0:
        asked = command.strip().splitlines()[0]
        raise Unanswered(f"{name}: `{asked}` failed with {done.rc} ({_last(done.stderr)}).")
    return str(done.stdout)


def _last(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1].rstrip(".") if lines else "it says nothing"
