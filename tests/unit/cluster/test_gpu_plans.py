"""Whatever GPUs, drivers and settings come together, the plan can be carried out, or it says why not."""

import json
from dataclasses import replace
from datetime import date
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from roles.cluster.driver import Driver
from roles.cluster.plan import Plan, as_data, make_plan
from roles.gpus.catalog import OpenModule, load, numbers
from roles.gpus.driver import Drivers, Nvidia
from tests.unit.cluster.examples import ADA, ARC, BLACKWELL, INTEGRATED, KEPLER, NAVI, PASCAL, TODAY, TURING, gpu_worker, head

CATALOG = load()
CARDS = st.lists(st.sampled_from([PASCAL, TURING, ADA, BLACKWELL, KEPLER, ARC, NAVI, INTEGRATED]), max_size=3, unique=True)
VERSIONS = st.sampled_from(["", "470.256.02", "535.261.03", "580.95.05", "595.71.05", "610.43.02", "620.10", "strange"])
FLAVOURS = st.sampled_from([None, "open", "proprietary"])
KERNEL = "6.12.57+deb13-amd64"
MODULES = st.sampled_from(
    [
        "nvidia-kernel-dkms",
        "nvidia-open-kernel-dkms",
        "linux-modules-nvidia-580-server-open-generic",
        "nvidia-dkms-580",
        "libcuda1",
    ]
)
LOG = st.sampled_from(
    ["NVRM: GPU 0000:01:00.0: GPU has fallen off the bus.", "Loading of unsigned module is rejected", "NVRM: x"]
)
NVIDIA = st.builds(
    Nvidia,
    VERSIONS,
    FLAVOURS,
    VERSIONS,
    FLAVOURS,
    dkms=st.sampled_from([None, False, True]),
    packages=st.dictionaries(MODULES, VERSIONS.map(lambda version: f"{version}-1"), max_size=2),
    problem=st.sampled_from(["", "No devices were found", "Driver/library version mismatch"]),
)
DRIVERS = st.builds(
    Drivers,
    kernel=st.just(KERNEL),
    next_kernel=st.sampled_from(["", KERNEL]),
    headers=st.booleans(),
    header_packages=st.sampled_from([(), ("linux-headers-amd64",)]),
    log=st.lists(LOG, max_size=2).map(tuple),
    secure_boot=st.sampled_from([None, False, True]),
    own_key_enrolled=st.booleans(),
    reboot_wanted=st.booleans(),
    nvidia=NVIDIA,
)
CHOICES = st.fixed_dictionaries(
    {},
    optional={
        "driver": st.sampled_from(["auto", "unmanaged", 550, 580, 595, 620]),
        "driver_source": st.sampled_from(["auto", "distribution", "nvidia"]),
        "driver_flavour": st.sampled_from(["auto", "open", "proprietary"]),
        "backend": st.sampled_from(["auto", "cpu", "cuda", "vulkan", "sycl", "hip"]),
        "cuda_toolkit": st.sampled_from(["12.4", "12.9", "13.0", "99.0"]),
        "cuda_shared_toolkit": st.booleans(),
        "cuda_architectures": st.sampled_from([["61-real"], ["120a-real", "61"], ["75-virtual"]]),
        "cuda_graphs": st.booleans(),
        "gpus": st.sampled_from([["GP102"], ["10de:2d04"]]),
        "passthrough": st.sampled_from([["01:00.0"], ["05:00.0", "0e:00.0"]]),
    },
)
SYSTEMS = st.sampled_from([*CATALOG.distributions, "ubuntu25.10"])
WORKERS = st.lists(st.tuples(CARDS, SYSTEMS, DRIVERS, CHOICES), min_size=1, max_size=3)


def planned(rows: list[Any], today: date = TODAY) -> Plan:
    workers = [
        gpu_worker(*cards, name=f"w{number}", address=f"192.0.2.{number + 11}", system=system, drivers=drivers, **choices)
        for number, (cards, system, drivers, choices) in enumerate(rows)
    ]
    return make_plan([*workers, head()], today, CATALOG)


@settings(max_examples=300)
@given(WORKERS, st.dates(date(2026, 1, 1), date(2031, 1, 1)))
def test_what_is_planned_can_be_carried_out(rows: list[Any], today: date) -> None:
    plan = planned(rows, today)
    assert list(plan.machines) == [*(f"w{number}" for number in range(len(rows))), "head"]
    refused = {refusal.partition(": ")[0] for refusal in plan.refusals}
    assert set(plan.hosts) == set(plan.machines) - refused
    for name, host in plan.hosts.items():
        machine, compute = plan.machines[name], host.compute
        assert (compute.backend == "cpu") == (not machine.gpus)
        nvidia = [gpu for gpu in machine.gpus if gpu.vendor == "nvidia"]
        assert (machine.driver is not None) == bool(nvidia)
        for gpu in nvidia:
            assert machine.driver is not None
            generation = CATALOG.generations[gpu.generation or ""]
            assert generation.last_branch is None or machine.driver.branch <= generation.last_branch
            needs_open, has_none = OpenModule.REQUIRED, OpenModule.IMPOSSIBLE
            assert (generation.open_module, machine.driver.flavour) not in {(needs_open, "proprietary"), (has_none, "open")}
        if compute.toolkit is not None and machine.driver is not None:
            toolkit = CATALOG.toolkits[compute.toolkit]
            if "75-virtual" not in compute.architectures:
                assert {gpu.compute_capability for gpu in machine.gpus} <= set(toolkit.capabilities)
            assert not machine.driver.version or numbers(toolkit.driver) <= numbers(machine.driver.version)


@given(WORKERS, st.sampled_from(["removed", "unpacked", "built", "rebooted"]), st.integers(0, 9))
def test_the_plan_stays_while_it_is_carried_out(rows: list[Any], reached: str, packages: int) -> None:
    """Another profile after the driver was installed would be another release, and a second build."""
    before = planned(rows)
    done = [
        (cards, system, _with(drivers, before.machines[f"w{number}"].driver, reached, packages), choices)
        for number, (cards, system, drivers, choices) in enumerate(rows)
    ]
    after = planned(done)
    assert {name: host.release for name, host in before.hosts.items()} == {
        name: host.release for name, host in after.hosts.items() if name in before.hosts
    }
    for name in before.hosts:
        one, other = before.machines[name].driver, after.machines[name].driver
        assert (one and (one.version, one.flavour)) == (other and (other.version, other.flavour))
        if reached in ("built", "rebooted"):
            assert not [step for step in after.machines[name].steps if "NVIDIA driver" in step]


def _with(drivers: Drivers, wanted: Driver | None, reached: str, packages: int) -> Drivers:
    """What a host shows when the driver that is wanted has been installed, or that was broken off.

    :param reached: how far it came: the old one is removed, some of the new packages are unpacked, all is built, it is loaded
    :param packages: how many are unpacked
    """
    if wanted is None or wanted.source == "unmanaged":
        return drivers
    nvidia = replace(drivers.nvidia, problem="")
    if wanted.source != "loaded":
        nvidia = replace(nvidia, on_disk="", on_disk_flavour=None, dkms=None, packages={})
    if reached in ("removed", "unpacked") and not drivers.next_kernel and wanted.source != "loaded":
        # Of a host without a kernel of its own nobody knows whether what it loads is installed.
        return drivers
    if reached == "removed":
        return drivers if wanted.source == "loaded" else replace(drivers, nvidia=nvidia)
    count = packages if reached == "unpacked" else None
    versions = {name: "6.12.57-1" if "linux-" in name else f"{wanted.version}-1" for name in wanted.packages[:count]}
    there = {name: version for name, version in versions.items() if "headers" not in name}
    nvidia = replace(nvidia, packages={**nvidia.packages, **there})
    headers = tuple(name for name in versions if "headers" in name)
    drivers = replace(drivers, header_packages=(*drivers.header_packages, *headers))
    if reached != "unpacked":
        drivers = replace(drivers, headers=True)
        # Ubuntu has built, and signed, what it calls so.
        dkms = None if any(name.startswith("linux-modules-nvidia") for name in wanted.packages) else True
        nvidia = replace(nvidia, on_disk=wanted.version, on_disk_flavour=wanted.flavour, dkms=dkms)
    if reached == "rebooted":
        nvidia = replace(nvidia, loaded=wanted.version, loaded_flavour=wanted.flavour)
        drivers = replace(drivers, log=())
    return replace(drivers, nvidia=nvidia)


@given(WORKERS)
def test_every_sentence_ends_and_none_says_none(rows: list[Any]) -> None:
    plan = planned(rows)
    for sentence in (*plan.refusals, *plan.warnings):
        assert sentence.endswith(".")
        assert "None" not in sentence
        assert "\n" not in sentence
    for machine in plan.machines.values():
        assert "None" not in " ".join((*machine.steps, *machine.choices, machine.reboot))


@given(WORKERS)
def test_a_plan_is_data_that_json_can_hold(rows: list[Any]) -> None:
    plan = planned(rows)
    data = as_data(plan)
    assert json.loads(json.dumps(data)) == data
    assert list(data) == ["commit", "hosts", "machines", "warnings", "refusals"]
    assert data["hosts"]["head"]["address"] == "192.0.2.10"
