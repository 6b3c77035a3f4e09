"""The plan: settings and facts in, one plan for all hosts out, or the reasons why there cannot be one. Pure.

It reads only what a run of the deploy cannot change, so that it is the same before, in the middle of and after a run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from ipaddress import IPv4Address

from roles.base.machine import HOME, USER, Machine
from roles.cluster.endpoints import resolve
from roles.cluster.settings import Settings

WORKERS = "workers"
HEADS = "heads"
GROUPS = frozenset({WORKERS, HEADS})

WORKER_TARGETS = ("rpc-server",)
HEAD_TARGETS = ("llama-server", "llama-bench", "llama-fit-params")

DISTRIBUTIONS = frozenset({"debian", "ubuntu"})


@dataclass(frozen=True)
class Host:
    """What the plan is made from, for one host."""

    name: str
    groups: frozenset[str]
    settings: Settings
    machine: Machine
    wants_sudo: bool


@dataclass(frozen=True)
class Profile:
    """Names one build: hosts with the same profile share it.

    :param system: distribution and release, e.g. debian13
    :param cpu_level: v2 or v3 (x86-64)
    :param targets: what is built
    :param options: CMake options, name → value
    """

    system: str
    cpu_level: str
    backend: str
    targets: tuple[str, ...]
    options: Mapping[str, str]

    @property
    def name(self) -> str:
        """E.g. ``debian13-v3-cpu-worker-1f0c2a``; the end is a hash of everything that goes in."""
        everything = json.dumps([self.system, self.cpu_level, self.backend, self.targets, dict(self.options)], sort_keys=True)
        kinds = [
            kind for kind, targets in (("worker", WORKER_TARGETS), ("head", HEAD_TARGETS)) if set(targets) <= set(self.targets)
        ]
        digest = sha256(everything.encode()).hexdigest()[:6]
        return "-".join([self.system, self.cpu_level, self.backend, *kinds, digest])


@dataclass(frozen=True)
class HostPlan:
    """What one host is to be.

    :param address: its address in the cluster network
    :param worker: it runs the RPC server
    :param head: it runs llama-server
    :param rpc_port: the port of its RPC server
    :param http_port: the port of its llama-server
    :param release: name of the release that it runs: commit and profile
    :param builder: name of the host that builds this release; the others get the archive from there
    :param endpoints: a head's workers, ``address:port``, in the order of the devices
    :param clients: a worker's heads: the addresses that its firewall lets in
    """

    name: str
    address: IPv4Address
    worker: bool
    head: bool
    rpc_port: int
    http_port: int
    commit: str
    profile: Profile
    release: str
    builder: str
    endpoints: tuple[str, ...] = ()
    clients: tuple[IPv4Address, ...] = ()

    @property
    def builds(self) -> bool:
        """Whether this host builds its release itself."""
        return self.builder == self.name


@dataclass(frozen=True)
class Plan:
    """One plan for all hosts; with refusals it has no hosts."""

    commit: str = ""
    hosts: Mapping[str, HostPlan] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()


def make_plan(hosts: list[Host]) -> Plan:
    """Decide for all hosts at once; every reason against it is found, not only the first."""
    refusals = group_problems({host.name: host.groups for host in hosts}) + _commits(hosts)
    for host in hosts:
        refusals += host_problems(host.name, host.machine, host.wants_sudo)
    addresses, problems = _addresses(hosts)
    refusals += problems
    endpoints, problems = _endpoints(hosts, addresses)
    refusals += problems
    if refusals:
        return Plan(refusals=tuple(refusals))
    profiles = {host.name: _profile(host) for host in hosts}
    builders = _builders(hosts, profiles)
    commit = hosts[0].settings.commit
    return Plan(
        commit=commit,
        hosts={
            host.name: HostPlan(
                name=host.name,
                address=addresses[host.name],
                worker=WORKERS in host.groups,
                head=HEADS in host.groups,
                rpc_port=host.settings.rpc_port,
                http_port=host.settings.http_port,
                commit=commit,
                profile=profiles[host.name],
                release=f"{commit[:12]}-{profiles[host.name].name}",
                builder=builders[host.name],
                endpoints=endpoints.get(host.name, ()),
                clients=_clients(host, addresses, endpoints),
            )
            for host in hosts
        },
    )


def host_problems(name: str, machine: Machine, wants_sudo: bool) -> list[str]:
    """What is wrong with a host whatever its settings are."""
    problems = []
    if not machine.root:
        if not wants_sudo:
            problems.append("we are not root there: log in as root (`ssh_user`), or set `_sudo = True` for this host.")
        elif machine.sudo != "yes":
            why = machine.sudo or "there is no sudo"
            problems.append(f"sudo does not work without a password ({why}): allow it with NOPASSWD in /etc/sudoers.d.")
    if machine.account not in ("", HOME):
        problems.append(
            f"it has a user `{USER}` already, whose home is {machine.account}: rename it, our services run as {USER}."
        )
    if machine.architecture != "x86_64":
        problems.append(f"its architecture is {machine.architecture or 'unknown'}: only x86_64 is supported.")
    elif machine.cpu_level == "v1":
        problems.append("its CPU is older than the level x86-64-v2 (no SSE4.2), too old for llama.cpp: take the host out.")
    if machine.os_id not in DISTRIBUTIONS:
        problems.append(f"it runs {machine.os_name or 'an unknown system'}: only Debian and Ubuntu are supported.")
    if not machine.systemd:
        problems.append("its PID 1 is not systemd, so services could not be installed: boot it with systemd.")
    return [f"{name}: {problem}" for problem in problems]


def cmake_options(settings: Settings, cpu_level: str) -> dict[str, str]:
    """CMake options of llama.cpp, complete: nothing is left to a default that differs between two commits.

    Source of names and meanings: llama.cpp's CMakeLists.txt and ggml/CMakeLists.txt at the two commits that are tested.
    """
    wide = "ON" if cpu_level == "v3" else "OFF"
    options = {
        "CMAKE_BUILD_TYPE": "Release",
        "BUILD_SHARED_LIBS": "ON",
        "GGML_NATIVE": "OFF",
        "GGML_RPC": "ON",
        "GGML_RPC_RDMA": "OFF",
        "GGML_SSE42": "ON",
        **dict.fromkeys(("GGML_AVX", "GGML_AVX2", "GGML_BMI2", "GGML_FMA", "GGML_F16C"), wide),
        "LLAMA_BUILD_TESTS": "OFF",
        "LLAMA_BUILD_EXAMPLES": "OFF",
        "LLAMA_CURL": "OFF",
        "LLAMA_OPENSSL": "OFF",
        "LLAMA_BUILD_UI": "ON" if settings.web_ui else "OFF",
        "LLAMA_USE_PREBUILT_UI": "OFF",
    }
    return options | settings.cmake_options


def group_problems(groups: Mapping[str, frozenset[str]]) -> list[str]:
    """What is wrong with the groups of the inventory.

    :param groups: host → the groups that it is in
    """
    problems = [
        f"{name}: it is in no group that we know: put it into `{WORKERS}` or `{HEADS}`, or take it out."
        for name, found in groups.items()
        if not GROUPS & found
    ]
    for group in (WORKERS, HEADS):
        if not any(group in found for found in groups.values()):
            problems.append(f"inventory: the group `{group}` is empty: a cluster needs at least one host in it.")
    return problems


def _commits(hosts: list[Host]) -> list[str]:
    commits = {host.settings.commit for host in hosts}
    if len(commits) < 2:
        return []
    who = ", ".join(f"{host.name} {host.settings.commit[:12]}" for host in hosts)
    return [f"inventory: `commit` differs between hosts ({who}): every host runs the same one, so set it for the group `all`."]


def _addresses(hosts: list[Host]) -> tuple[dict[str, IPv4Address], list[str]]:
    addresses: dict[str, IPv4Address] = {}
    problems = []
    for host in hosts:
        network = host.settings.network
        inside = [address for address in host.machine.addresses if address in network]
        if host.settings.address is not None:
            if host.settings.address not in network:
                problems.append(
                    f"{host.name}: address = {host.settings.address} is not in network = {network}: correct one of them."
                )
            addresses[host.name] = host.settings.address
        elif len(inside) == 1:
            addresses[host.name] = inside[0]
        elif inside:
            found = ", ".join(map(str, inside))
            problems.append(f"{host.name}: it has several addresses in {network} ({found}): set `address` for this host.")
        else:
            found = ", ".join(map(str, host.machine.addresses)) or "none"
            problems.append(f"{host.name}: it has no address in network = {network} (it has {found}): correct `network`.")
    owners: dict[IPv4Address, str] = {}
    for name, address in addresses.items():
        if address in owners:
            problems.append(f"{name}: it has the same address as {owners[address]} ({address}): correct one of them.")
        owners.setdefault(address, name)
    return addresses, problems


def _endpoints(hosts: list[Host], addresses: Mapping[str, IPv4Address]) -> tuple[dict[str, tuple[str, ...]], list[str]]:
    workers = {
        host.name: (addresses[host.name], host.settings.rpc_port)
        for host in hosts
        if WORKERS in host.groups and host.name in addresses
    }
    endpoints: dict[str, tuple[str, ...]] = {}
    problems: list[str] = []
    owners: dict[str, str] = {}
    for head in [host for host in hosts if HEADS in host.groups]:
        if head.settings.endpoints is None:
            found = [f"{address}:{port}" for address, port in workers.values()]
        else:
            found, wrong = resolve(head.settings.endpoints, workers)
            problems += [f"{head.name}: {problem}." for problem in wrong]
            if not head.settings.endpoints:
                problems.append(f"{head.name}: endpoints = [] names no worker: leave it out to use all of them.")
        for endpoint in found:
            if endpoint in owners:
                problems.append(
                    f"{head.name}: {endpoint} is used by {owners[endpoint]} too, and a worker serves one head at a time:"
                    " give each head its own `endpoints`."
                )
            owners.setdefault(endpoint, head.name)
        endpoints[head.name] = tuple(found)
    return endpoints, problems


def _profile(host: Host) -> Profile:
    targets = (WORKER_TARGETS if WORKERS in host.groups else ()) + (HEAD_TARGETS if HEADS in host.groups else ())
    level = "v3" if host.machine.cpu_level == "v3" else "v2"
    return Profile(
        system=f"{host.machine.os_id}{host.machine.os_version}",
        cpu_level=level,
        backend=host.settings.backend,
        targets=targets,
        options=cmake_options(host.settings, level),
    )


def _builders(hosts: list[Host], profiles: Mapping[str, Profile]) -> dict[str, str]:
    first: dict[str, str] = {}
    for host in hosts:
        first.setdefault(profiles[host.name].name, host.name)
    return {host.name: first[profiles[host.name].name] for host in hosts}


def _clients(
    host: Host, addresses: Mapping[str, IPv4Address], endpoints: Mapping[str, tuple[str, ...]]
) -> tuple[IPv4Address, ...]:
    own = f"{addresses[host.name]}:{host.settings.rpc_port}"
    return tuple(addresses[head] for head, used in endpoints.items() if own in used)
