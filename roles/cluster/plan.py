"""The plan: settings and facts in, one plan for all hosts out, or the reasons why there cannot be one. Pure.

It reads only what a run of the deploy cannot change, so that it is the same before, in the middle of and after a run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import date
from ipaddress import IPv4Address
from typing import Any

from roles.base.machine import HOME, USER, Machine
from roles.cluster.backend import CPU, Lender, devices, lent, names
from roles.cluster.dockerfile import with_recipe
from roles.cluster.endpoints import resolve
from roles.cluster.hypervisors import HYPERVISORS
from roles.cluster.hypervisors import problems as hypervisor_problems
from roles.cluster.options import HEAD_TARGETS, WORKER_TARGETS, Profile, cmake_options
from roles.cluster.provision import MachinePlan, Provision, provision
from roles.cluster.settings import Runtime, Settings
from roles.cluster.toolkit import ComputePlan, Computing, graphs, plan_compute
from roles.gpus.catalog import Catalog
from roles.gpus.driver import Drivers
from roles.gpus.gpu import Gpu
from roles.gpus.pci import Device

WORKERS = "workers"
HEADS = "heads"
GROUPS = (WORKERS, HEADS, HYPERVISORS)
CLUSTER = (WORKERS, HEADS)
"""Groups that a cluster needs at least one host in."""
SERVING = frozenset(CLUSTER)
"""Groups whose hosts run a release."""

DISTRIBUTIONS = frozenset({"debian", "ubuntu"})


@dataclass(frozen=True)
class Host:
    """What the plan is made from, for one host.

    :param gpus: its GPUs, as they were seen
    :param devices: its PCI devices, as far as they were looked at
    :param drivers: what drives them, as it was seen
    """

    name: str
    groups: frozenset[str]
    settings: Settings
    machine: Machine
    wants_sudo: bool
    gpus: tuple[Gpu, ...] = ()
    drivers: Drivers = field(default_factory=Drivers)
    devices: tuple[Device, ...] = ()

    @property
    def serves(self) -> bool:
        """Whether it is to run a release: a worker or a head."""
        return bool(SERVING & self.groups)

    @property
    def in_container(self) -> bool:
        """Whether it is to run its release in a container."""
        return self.settings.runtime == "docker"

    @property
    def system(self) -> str:
        """Distribution and release, e.g. debian13."""
        return f"{self.machine.os_id}{self.machine.os_version}"

    @property
    def cpu_level(self) -> str:
        """The x86-64 level that is compiled for: v2 or v3."""
        return "v3" if self.machine.cpu_level == "v3" else "v2"


@dataclass(frozen=True)
class HostPlan:
    """What one host is to be.

    :param address: its address in the cluster network
    :param worker: it runs the RPC server
    :param head: it runs llama-server
    :param rpc_port: the port of its RPC server
    :param http_port: the port of its llama-server
    :param runtime: how it runs its release
    :param gpus: how many GPUs compute here, of those that are seen: a worker cannot lend what is only declared
    :param names: what llama.cpp calls them, empty where that is not certain
    :param devices: those of its devices that a container of ours gets, as `docker run --device` names them
    :param container_memory: MiB that such a container may take, None: no limit
    :param compute: what its build is compiled with and for
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
    compute: ComputePlan
    profile: Profile
    release: str
    builder: str
    endpoints: tuple[str, ...] = ()
    clients: tuple[IPv4Address, ...] = ()
    runtime: Runtime = "native"
    gpus: int = 0
    names: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    container_memory: int | None = None

    @property
    def builds(self) -> bool:
        """Whether this host builds its release itself."""
        return self.builder == self.name

    @property
    def lends_to_itself(self) -> bool:
        """Whether the head here has this host's GPUs from the worker here: given them as well, it would count each one twice."""
        return self.compute.backend != CPU and f"{self.address}:{self.rpc_port}" in self.endpoints

    @property
    def head_has_devices(self) -> bool:
        """Whether the head here gets the devices of the GPUs.

        CUDA's programs do not start without the driver's library, which comes into a container with the GPU: with CUDA a head
        that is not to use them hides them by a variable.
        """
        return not self.lends_to_itself or self.compute.backend == "cuda"


@dataclass(frozen=True)
class Plan:
    """One plan for all hosts.

    With refusals nothing may be done by it: it holds what could be decided all the same, so that it can be shown.

    :param commit: empty where the hosts do not agree on one
    :param hosts: workers and heads; with refusals, those that could be planned
    :param machines: all hosts
    """

    commit: str = ""
    hosts: Mapping[str, HostPlan] = field(default_factory=dict)
    machines: Mapping[str, MachinePlan] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()


def make_plan(hosts: list[Host], today: date, catalog: Catalog, needed: Sequence[str] = CLUSTER) -> Plan:
    """Decide for all hosts at once; every reason against it is found, not only the first.

    :param today: what ends of life are compared with
    :param needed: groups that there has to be a host in
    """
    serving = [host for host in hosts if host.serves]
    unfit = {host.name: host_problems(host.name, host.machine, host.wants_sudo, host.serves) for host in hosts}
    refusals = group_problems({host.name: host.groups for host in hosts}, needed) + _runs_on(hosts) + _commits(serving)
    refusals += [problem for problems in unfit.values() for problem in problems]
    addresses, problems = _addresses(serving)
    refusals += problems
    endpoints, problems = _endpoints(serving, addresses)
    refusals += problems
    lenders = {host.name: Lender(host.name, lent(host.gpus, host.settings)) for host in hosts if HYPERVISORS in host.groups}
    provisions = {host.name: _provision(host, today, catalog, lenders.get(host.settings.runs_on or "")) for host in hosts}
    compute = _compute(serving, provisions, catalog)
    commits = {host.settings.commit for host in serving}
    commit = commits.pop() if len(commits) == 1 else ""
    planned = [host for host in serving if commit and host.name in compute and host.name in addresses and not unfit[host.name]]
    profiles = {host.name: _profile(host, compute[host.name], provisions[host.name], catalog) for host in planned}
    builders = _builders(planned, profiles)
    machines = {name: found.machine for name, found in provisions.items()}
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
                compute=compute[host.name],
                profile=profiles[host.name],
                release=f"{commit[:12]}-{profiles[host.name].name}",
                builder=builders[host.name],
                endpoints=endpoints.get(host.name, ()),
                clients=_clients(host, addresses, endpoints),
                runtime=host.settings.runtime,
                gpus=len(provisions[host.name].selection.seen),
                names=names(provisions[host.name].selection),
                devices=devices(provisions[host.name].selection) if host.in_container else (),
                container_memory=host.settings.container_memory if host.in_container else None,
            )
            for host in planned
        },
        machines=machines,
        warnings=(
            *(f"{name}: {warning}" for name, found in provisions.items() for warning in found.remarks.warnings),
            *_interrupted(hosts),
            *_unlike_graphs(provisions, compute),
        ),
        refusals=(
            *refusals,
            *machine_refusals(machines),
        ),
    )


def as_data(plan: Plan) -> dict[str, Any]:
    """The plan as JSON can hold it; every key is there, in the order of the dataclasses."""
    data: dict[str, Any] = _plain(plan)
    return data


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {entry.name: _plain(getattr(value, entry.name)) for entry in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, bool | int | float) else str(value)


def machine_refusals(machines: Mapping[str, MachinePlan]) -> list[str]:
    """What is refused of single machines, whatever the others are."""
    return [f"{name}: {refusal}" for name, machine in machines.items() for refusal in machine.refusals]


def host_problems(name: str, machine: Machine, wants_sudo: bool, serves: bool = True) -> list[str]:
    """What is wrong with a host whatever its settings are.

    :param serves: it is to run a release
    """
    problems = []
    if not machine.root:
        if not wants_sudo:
            problems.append("we are not root there: log in as root (`ssh_user`), or set `_sudo = True` for this host.")
        elif machine.sudo != "yes":
            why = machine.sudo or "there is no sudo"
            problems.append(f"sudo does not work without a password ({why}): allow it with NOPASSWD in /etc/sudoers.d.")
    if serves and machine.account not in ("", HOME):
        problems.append(
            f"it has a user `{USER}` already, whose home is {machine.account}: rename it, our services run as {USER}."
        )
    if machine.architecture != "x86_64":
        problems.append(
            f"its architecture is {machine.architecture or 'unknown'}: only x86_64 is supported, so take the host out."
        )
    elif serves and machine.cpu_level == "v1":
        problems.append("its CPU is older than the level x86-64-v2 (no SSE4.2), too old for llama.cpp: take the host out.")
    if machine.os_id not in DISTRIBUTIONS:
        problems.append(
            f"it runs {machine.os_name or 'an unknown system'}: only Debian and Ubuntu are supported, so take the host out."
        )
    if not machine.systemd:
        problems.append("its PID 1 is not systemd, so services could not be installed: boot it with systemd.")
    return [f"{name}: {problem}" for problem in problems]


def plan_machine(host: Host, today: date, catalog: Catalog) -> MachinePlan:
    """The part of the plan that concerns one machine alone."""
    return _provision(host, today, catalog).machine


def group_problems(groups: Mapping[str, frozenset[str]], needed: Sequence[str] = CLUSTER) -> list[str]:
    """What is wrong with the groups of the inventory.

    :param groups: host → the groups that it is in
    :param needed: groups that there has to be a host in
    """
    problems = [
        f"{name}: it is in no group that we know: put it into `{WORKERS}`, `{HEADS}` or `{HYPERVISORS}`, or take it out."
        for name, found in groups.items()
        if found.isdisjoint(GROUPS)
    ]
    for group in needed:
        if not any(group in found for found in groups.values()):
            problems.append(f"inventory: the group `{group}` is empty: {_use(group)}.")
    return problems


def _use(group: str) -> str:
    if group in CLUSTER:
        return "a cluster needs at least one host in it"
    return "put the hosts there whose GPUs are to belong to virtual machines; without one there is nothing to do here"


def _runs_on(hosts: list[Host]) -> list[str]:
    return hypervisor_problems(
        {host.name: host.settings.runs_on for host in hosts}, [host.name for host in hosts if HYPERVISORS in host.groups]
    )


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


def _provision(host: Host, today: date, catalog: Catalog, lender: Lender | None = None) -> Provision:
    # On a hypervisor that is nothing else nothing computes, whatever the inventory says for all hosts.
    settings = host.settings if host.serves else host.settings.model_copy(update={"backend": "auto", "runtime": "native"})
    works = WORKERS in host.groups
    return provision(host.gpus, host.devices, host.drivers, settings, works, host.system, today, catalog, lender)


def _compute(serving: list[Host], provisions: Mapping[str, Provision], catalog: Catalog) -> dict[str, ComputePlan]:
    """What the hosts compile with and for; those of which something is refused are left out."""
    computing = {}
    for host in serving:
        found = provisions[host.name]
        if not found.remarks.refusals:
            version = found.driver.version if found.driver else ""
            computing[host.name] = Computing(found.selection.backend, found.selection.gpus, version, host.settings)
    planned = plan_compute(computing, catalog, {name: provisions[name].remarks for name in computing})
    return {name: plan for name, plan in planned.items() if not provisions[name].remarks.refusals}


def _interrupted(hosts: list[Host]) -> list[str]:
    """A package manager that was killed or lost its power has left something undone."""
    return [
        f"{host.name}: dpkg was interrupted with {', '.join(host.machine.unfinished)} half-configured; it is finished before"
        " anything is installed."
        for host in hosts
        if host.machine.unfinished
    ]


def _unlike_graphs(provisions: Mapping[str, Provision], compute: Mapping[str, ComputePlan]) -> list[str]:
    """CUDA graphs behave differently, and leak differently, on the two kinds of GPUs."""
    users: dict[bool, list[str]] = {True: [], False: []}
    for name, plan in compute.items():
        if plan.backend == "cuda":
            for gpu in provisions[name].selection.gpus:
                users[graphs(plan, gpu)].append(f"{gpu.chip or gpu.device_id} of {name}")
    if not users[True] or not users[False]:
        return []
    on, off = (" and ".join(dict.fromkeys(users[used])) for used in (True, False))
    return [f"inventory: CUDA graphs are on for {on}, and off for {off}: set `cuda_graphs = False` to have them alike."]


def _profile(host: Host, compute: ComputePlan, found: Provision, catalog: Catalog) -> Profile:
    targets = (WORKER_TARGETS if WORKERS in host.groups else ()) + (HEAD_TARGETS if HEADS in host.groups else ())
    level, backend, architectures = host.cpu_level, compute.backend, compute.architectures
    options = cmake_options(host.settings.web_ui and HEADS in host.groups, level, backend, architectures)
    offer = None if host.in_container else catalog.toolkit_offer(host.system, compute.toolkit)
    options |= offer.cmake_options if offer else {}
    for name, value in host.settings.cmake_options.items():
        found.remarks.override(f"cmake_options: {name}", value, options.get(name))
    profile = Profile(
        system="docker" if host.in_container else host.system,
        cpu_level=level,
        backend=backend,
        targets=targets,
        options=options | host.settings.cmake_options,
        toolkit=compute.toolkit or "",
        architectures=architectures,
        image=compute.build_image if host.in_container else "",
        runtime_image=compute.runtime_image if host.in_container else "",
    )
    return with_recipe(profile) if host.in_container else profile


def _builders(hosts: list[Host], profiles: Mapping[str, Profile]) -> dict[str, str]:
    first: dict[str, str] = {}
    for host in hosts:
        first.setdefault(profiles[host.name].name, host.name)
    return {host.name: first[profiles[host.name].name] for host in hosts}


def _clients(
    host: Host, addresses: Mapping[str, IPv4Address], endpoints: Mapping[str, tuple[str, ...]]
) -> tuple[IPv4Address, ...]:
    own = f"{addresses[host.name]}:{host.settings.rpc_port}"
    return tuple(addresses[head] for head, used in endpoints.items() if own in used and head in addresses)
