"""What preflight prints, compared with files that a person can read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from roles.cluster.plan import Host, Plan
from roles.cluster.switch import planned_units
from roles.gpus.driver import Drivers, Nvidia
from roles.gpus.lspci import parse
from roles.preflight.report import report
from tests.unit.cluster.examples import ADA, BLACKWELL, PASCAL, gpu_worker, gpus, host, loaded, machine, plan_of
from tests.unit.gpus.cases import text

GOLDEN = Path(__file__).parent / "golden"


def lab() -> list[Host]:
    """The reference lab: a hypervisor, its virtual machine that has not got its card yet, a laptop, and a head."""
    virtbase = host("virtbase", ["hypervisors"], machine("192.0.2.10"), passthrough=["0e:00.0"])
    laptop = host("laptop", ["workers"], machine("192.0.2.22", os_id="ubuntu", os_version="24.04", os_name="Ubuntu 24.04.3 LTS"))
    (mobile,) = gpus(text("4080-mobile-x8"))
    return [
        replace(virtbase, gpus=gpus(text("1080ti-x4-slot-unknown")), devices=tuple(parse(text("1080ti-x4-slot-unknown")))),
        host("gpu-1080ti", ["workers"], machine("192.0.2.21"), gpus=["GP102 [GeForce GTX 1080 Ti] [10de:1b06]"]),
        replace(laptop, gpus=(replace(mobile, memory_mib=12282),), drivers=loaded("610.43.02", "open", reboot_wanted=True)),
        host("rpc-main", ["heads"], machine("192.0.2.20")),
    ]


def mixed() -> list[Host]:
    """Two cards in one box that no driver drives together, one that is off the bus, and one that Linux only sees in part."""
    box = host("box", ["workers", "heads"], machine("192.0.2.11"))
    dead = host("dead", ["workers"], machine("192.0.2.12"))
    arc = host("arc", ["workers"], machine("192.0.2.13"))
    return [
        replace(box, gpus=gpus(PASCAL, BLACKWELL)),
        replace(dead, gpus=gpus(text("rev-ff").replace("vfio-pci", "nvidia"))),
        replace(arc, gpus=gpus(text("a770-alone"))),
    ]


def printed(plan: Plan, hosts: Sequence[Host], steps: Mapping[str, Sequence[str]], width: int = 80) -> str:
    """What a pipe gets; the spaces at the ends of lines are left out."""
    file = StringIO()
    Console(file=file, width=width, highlight=False).print(report(plan, hosts, steps))
    return "".join(f"{line.rstrip()}\n" for line in file.getvalue().splitlines())


def steps(plan: Plan) -> dict[str, tuple[str, ...]]:
    """What a host that has nothing yet gets."""
    return {
        name: (f"build {there.release}", f"switch to {there.release}", *(f"start {unit}" for unit in planned_units(there)))
        for name, there in plan.hosts.items()
    }


@pytest.mark.parametrize(("name", "hosts"), [("reference-lab", lab()), ("refused", mixed())])
def test_it_is_printed_as_in_the_golden_file(name: str, hosts: list[Host]) -> None:
    plan = plan_of(hosts)
    assert printed(plan, hosts, steps(plan)) == (GOLDEN / f"{name}.txt").read_text()


def test_without_a_plan_the_refusals_are_printed_all_the_same() -> None:
    said = printed(Plan(refusals=("inventory: endpoints = [red] is refused.",)), [], {})
    assert "refused  inventory: endpoints = [red] is refused." in said


def test_a_driver_that_waits_for_a_reboot_is_not_called_the_same() -> None:
    drivers = Drivers(nvidia=Nvidia("610.43.02", "open", "580.173.02", "open"))
    hosts = [gpu_worker(ADA, system="ubuntu24.04", drivers=drivers, driver=580)]
    said = printed(plan_of(hosts), hosts, {})
    assert (
        "  driver   610.43.02 (open module)\n"
        "  state    NVIDIA driver 610.43.02 (open module) is loaded and 580.173.02\n"
        "           (open module) is installed: reboot.\n"
        "  wanted   580.173.02 (open module), which is installed\n"
    ) in said


def test_a_driver_that_is_to_be_completed_is_called_the_same() -> None:
    packages = {"nvidia-kernel-dkms": "550.163.01-2", "libcuda1": "550.163.01-2"}
    drivers = Drivers(next_kernel="6.12.57+deb13-amd64", nvidia=Nvidia(packages=packages, dkms=False))
    hosts = [gpu_worker(PASCAL, drivers=drivers)]
    said = printed(plan_of(hosts), hosts, {})
    assert (
        "  driver   550.163.01 (proprietary module)\n"
        "  state    NVIDIA driver 550.163.01 has no module for the kernel that boots\n"
        "           next (6.12.57+deb13-amd64), since its headers are missing: install\n"
        "           them, and let DKMS build it (deploys/prepare.py does that); where\n"
        "           there are none any more, upgrade the kernel.\n"
        "  wanted   the same\n"
    ) in said


@pytest.mark.parametrize("width", [40, 80, 200])
def test_nothing_is_cut_however_narrow_the_terminal_is(width: int) -> None:
    hosts = lab()
    plan = plan_of(hosts)
    text = printed(plan, hosts, steps(plan), width)
    assert all(len(line) <= width for line in text.splitlines())
    said = "".join(text.split())
    for words in (
        hosts[0].gpus[0].name,
        hosts[2].gpus[0].name,
        *(there.release for there in plan.hosts.values()),
        *plan.warnings,
    ):
        assert "".join(words.split()) in said


def test_a_pipe_gets_plain_letters_without_colours_and_boxes() -> None:
    hosts = mixed()
    assert printed(plan_of(hosts), hosts, {}).isascii()
