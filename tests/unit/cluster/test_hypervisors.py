"""What runs on what: the settings that say so, what goes down with what, and where a guest's card comes from."""

from dataclasses import replace
from typing import Any

import pytest

from roles.cluster.hypervisors import below, guests
from roles.cluster.plan import Host
from roles.cluster.reboots import carrying
from tests.unit.cluster.examples import ADA, PASCAL, gpu_worker, gpus, head, host, machine, plan_of

TURTLES = {"virt": None, "nested": "virt", "w1": "nested", "w2": "virt", "head": None}
CARD = "0000:01:00.0"
DECLARED = "w1: GP102 is declared in `gpus` and is not seen: "


def hypervisor(name: str = "virt", *cards: str, driver: str | None = "vfio-pci", **settings: Any) -> Host:
    there = host(name, ["hypervisors"], machine("192.0.2.30"), **settings)
    return replace(there, gpus=gpus(*cards, driver=driver))


def warnings(*hosts: Host) -> list[str]:
    """What is said of the GPUs that a worker declares."""
    plan = plan_of([*hosts, head()])
    assert plan.refusals == ()
    return [line for line in plan.warnings if line.startswith("w1: ") and "declared" in line]


@pytest.mark.parametrize(
    ("runs_on", "way_out"),
    [
        ("wirt", "no host of `hypervisors`: did you mean 'virt'?"),
        ("head", "no host of `hypervisors`: put head into that group, or take `runs_on` out."),
        ("proxmox", "no host of `hypervisors`: name one of them (virt), or take `runs_on` out."),
    ],
)
def test_a_guest_names_a_hypervisor(runs_on: str, way_out: str) -> None:
    plan = plan_of([hypervisor(), gpu_worker(runs_on=runs_on), head()])
    assert plan.refusals == (f"w1: runs_on = {runs_on!r} is {way_out}",)


def test_without_a_hypervisor_there_is_none_to_name() -> None:
    plan = plan_of([gpu_worker(runs_on="proxmox"), head()])
    assert plan.refusals == (
        "w1: runs_on = 'proxmox' is no host of `hypervisors`: name one of them (there is none), or take `runs_on` out.",
    )


def test_nothing_runs_on_itself() -> None:
    itself = hypervisor(runs_on="virt")
    assert plan_of([itself, gpu_worker(), head()]).refusals == (
        "virt: runs_on = 'virt' says that it runs on itself: name the machine that it is a guest of.",
    )
    each_other = [hypervisor("a", runs_on="b"), hypervisor("b", runs_on="a")]
    assert [line.partition(":")[0] for line in plan_of([*each_other, gpu_worker(), head()]).refusals] == ["a", "b"]


def test_a_hypervisor_may_be_a_guest_itself() -> None:
    assert plan_of([hypervisor(), hypervisor("nested", runs_on="virt"), gpu_worker(runs_on="nested"), head()]).refusals == ()
    assert below("w1", TURTLES) == ["nested", "virt"]
    assert guests("virt", TURTLES) == ["nested", "w1", "w2"]
    assert guests("head", TURTLES) == []


@pytest.mark.parametrize(
    ("own_boot", "found"), [("3", {"w1", "nested", "virt"}), ("1", {"virt"}), ("9", set()), ("", set()), ("5", {"head"})]
)
def test_whose_reboot_would_end_this_run(own_boot: str, found: set[str]) -> None:
    boots = {"virt": "1", "nested": "2", "w1": "3", "w2": "", "head": "5"}
    assert carrying(own_boot, boots, TURTLES) == found


@pytest.mark.parametrize("driver", ["vfio-pci", "nouveau", None])
def test_a_guest_without_its_card_is_told_which_one_to_get(driver: str | None) -> None:
    """Whether it is bound already or is to be."""
    virt = hypervisor("virt", PASCAL, ADA, driver=driver, passthrough=["01:00.0", "03:00.0"])
    assert warnings(virt, gpu_worker(gpus=["GP102"], runs_on="virt")) == [
        f"{DECLARED}give this virtual machine the device {CARD} of virt, start it, and run again."
    ]


@pytest.mark.parametrize("cards", [[ADA], []])
def test_a_guest_without_its_card_is_told_whose_it_is_to_be(cards: list[str]) -> None:
    assert warnings(hypervisor("virt", *cards), gpu_worker(gpus=["GP102"], runs_on="virt")) == [
        f"{DECLARED}name its address in `passthrough` of virt, run deploys/hypervisors.py, give the card to this virtual machine,"
        " start it, and run again; or take it out of `gpus`."
    ]


def test_a_card_that_the_hypervisor_keeps_is_none_to_give() -> None:
    kept = hypervisor("virt", PASCAL, driver="nouveau")
    assert warnings(kept, gpu_worker(gpus=["GP102"], runs_on="virt"))[0].startswith(
        f"{DECLARED}name its address in `passthrough`"
    )


def test_a_guest_that_has_its_card_is_told_nothing() -> None:
    assert warnings(hypervisor("virt", PASCAL), gpu_worker(PASCAL, gpus=["GP102"], runs_on="virt")) == []
