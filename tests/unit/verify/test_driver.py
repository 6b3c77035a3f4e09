"""Verification of NVIDIA's driver: the answers of hosts are read rightly, and each fault turns its test red with the state."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roles.cluster.plan import Host
from roles.gpus.driver import Drivers, Nvidia
from tests.unit.cluster.examples import PASCAL, gpu_worker, head, plan_of
from tests.verify import reading
from tests.verify import test_driver as verification
from tests.verify.cluster import Subject

LOADED = (Path(__file__).parent / "answers" / "driver-loaded.txt").read_text()
KERNEL = "6.12.57+deb13-amd64"
VERSION = "550.163.01"
INSTALLED = Drivers(kernel=KERNEL, next_kernel=KERNEL, nvidia=Nvidia(on_disk=VERSION, on_disk_flavour="proprietary"))
RUNS = Drivers(kernel=KERNEL, next_kernel=KERNEL, nvidia=Nvidia(VERSION, "proprietary", VERSION, "proprietary"))


def test_the_answer_of_a_host_is_read() -> None:
    assert reading.driver(LOADED) == reading.Driver(
        loaded=VERSION,
        library=VERSION,
        kernel=KERNEL,
        modules=frozenset({(KERNEL, VERSION)}),
        pins="# NVIDIA's driver stays at branch 550.\nPackage: nvidia-*",
        gpus=("GPU 0: NVIDIA GeForce GTX 1080 Ti (UUID: GPU-7c0d9b1e-2f3a-4b5c-8d6e-0123456789ab)",),
    )


def test_a_host_without_the_driver_says_so() -> None:
    assert reading.driver("Loaded=\n") == reading.Driver()
    assert reading.driver("Loaded=\nNouveau=\n").nouveau


def test_the_command_never_fails() -> None:
    """This computer has no GPU."""
    done = subprocess.run(["sh", "-c", reading.DRIVER_COMMAND], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Loaded=" in done.stdout


@given(st.lists(st.text() | st.builds("{}={}".format, st.sampled_from(["Module", "Gpu", "Library", "Pin"]), st.text())))
def test_no_answer_raises(lines: list[str]) -> None:
    reading.driver("\n".join(lines))


@dataclass(frozen=True)
class Connection:
    """A host that always says the same."""

    stdout: str
    rc: int = 0

    def run(self, command: str) -> Connection:
        return self


def subject(worker: Host, answer: str) -> Subject:
    plan = plan_of([worker, head()])
    assert plan.refusals == ()
    return Subject(plan.hosts["w1"], plan.machines["w1"], {}, Connection(answer))


def seen_card(drivers: Drivers = RUNS, answer: str = LOADED, **settings: Any) -> Subject:
    return subject(gpu_worker(PASCAL, drivers=drivers, driver_of_gpus="nvidia", **settings), answer)


def card_to_come(drivers: Drivers = INSTALLED, answer: str = "") -> Subject:
    return subject(gpu_worker(gpus=["GP102"], drivers=drivers), answer or waiting())


def waiting(text: str = LOADED) -> str:
    """The answer of a machine whose card is still to come."""
    return "".join(f"{line}\n" for line in text.splitlines() if not line.startswith(("Gpu", "Loaded")))


def red(driven: Subject) -> dict[str, str]:
    """The tests that fail, each with the beginning of its sentence."""
    tests: list[Callable[[Subject], None]] = [
        getattr(verification, name) for name in dir(verification) if name.startswith("test_")
    ]
    assert len(tests) == 5
    failures = {}
    for test in tests:
        try:
            test(driven)
        except AssertionError as error:
            failures[test.__name__] = str(error).partition("\n")[0]
    return failures


@pytest.mark.parametrize(
    "driven",
    [
        seen_card(),
        card_to_come(),
        # A container, which has no kernel.
        card_to_come(answer="Loaded=\nLibrary=/usr/lib/x86_64-linux-gnu/libcuda.so.550.163.01\nPin=branch 550\n"),
        seen_card(answer="".join(line for line in LOADED.splitlines(True) if "Pin" not in line), driver="unmanaged"),
    ],
    ids=["loaded", "installed", "container", "unmanaged"],
)
def test_it_is_green_where_all_is_as_planned(driven: Subject) -> None:
    assert red(driven) == {}


DRIVES = "test_driver_drives_every_planned_card"
NEXT = "test_driver_is_installed_for_the_next_boot"


@pytest.mark.parametrize(
    ("driven", "failures"),
    [
        (
            seen_card(INSTALLED, waiting()),
            {DRIVES: "w1: NVIDIA's driver is not loaded; NVIDIA driver 550.163.01 (proprietary module) is installed"},
        ),
        (
            seen_card(answer=LOADED.replace("Loaded=550.163.01", "Loaded=550.90.07")),
            {DRIVES: "w1: NVIDIA's module 550.90.07 is loaded and libcuda is 550.163.01; NVIDIA driver 550.163.01 is loaded."},
        ),
        (seen_card(answer=LOADED.partition("Gpu=")[0]), {DRIVES: "w1: nvidia-smi lists 0 GPUs, and 1 are planned; "}),
        (card_to_come(RUNS, LOADED), {DRIVES: "w1: NVIDIA driver 550.163.01 is loaded, and no card is seen there"}),
        (
            card_to_come(answer=waiting(LOADED.replace(f"Kernel={KERNEL}", "Kernel=6.12.90"))),
            {NEXT: "w1: the kernel that boots next, 6.12.90"},
        ),
        (
            card_to_come(answer="Loaded=\nPin=550\n"),
            {NEXT: "w1: NVIDIA's driver is not installed; NVIDIA driver 550.163.01 (propr"},
        ),
        (
            card_to_come(answer=f"{waiting()}Module=/lib/modules/{KERNEL}/kernel/drivers/video/nvidia.ko 595.71.05\n"),
            {"test_no_module_of_another_branch_is_there": f"w1: there are modules of NVIDIA driver 595.71.05 for {KERNEL}"},
        ),
        (
            seen_card(answer=f"{LOADED}Nouveau=\n"),
            {"test_nouveau_is_not_loaded": "w1: nouveau is loaded, beside NVIDIA's driver; "},
        ),
        (
            seen_card(answer=LOADED.replace("branch 550", "branch 595")),
            {"test_branch_is_pinned": "w1: nothing pins NVIDIA's driver to branch 550"},
        ),
    ],
)
def test_each_fault_turns_its_test_red(driven: Subject, failures: dict[str, str]) -> None:
    found = red(driven)
    assert found.keys() == failures.keys()
    for test, beginning in failures.items():
        assert found[test].startswith(beginning)
