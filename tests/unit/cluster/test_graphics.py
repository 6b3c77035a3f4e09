"""Firmware and Vulkan: which packages a host's GPUs need, and where nothing may be installed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from roles.cluster.provision import MachinePlan
from roles.gpus.driver import Drivers
from tests.unit.cluster.examples import ADA, ARC, INTEGRATED, NAVI, PASCAL, gpu_worker, head, loaded, plan_of

MESA = ("mesa-vulkan-drivers", "libvulkan1", "vulkan-tools")


def machine(*cards: str, **more: Any) -> MachinePlan:
    return plan_of([gpu_worker(*cards, **more), head()]).machines["w1"]


@pytest.mark.parametrize(
    ("cards", "system", "packages"),
    [
        ([NAVI], "debian12", ("firmware-amd-graphics", *MESA)),
        ([NAVI], "debian13", ("firmware-amd-graphics", *MESA)),
        ([ARC], "debian12", ("firmware-misc-nonfree", *MESA)),
        ([ARC], "debian13", ("firmware-intel-graphics", *MESA)),
        # ROCm and SYCL come in a container.
        ([NAVI], "ubuntu24.04", ("linux-firmware",)),
        ([ARC], "ubuntu24.04", ("linux-firmware",)),
        ([PASCAL], "debian12", ()),
        ([], "debian12", ()),
        ([INTEGRATED], "debian13", ()),
    ],
)
def test_what_the_gpus_need(cards: list[str], system: str, packages: tuple[str, ...]) -> None:
    assert machine(*cards, system=system).graphics == packages


def test_two_vendors_that_compute_with_vulkan_get_the_firmware_of_both() -> None:
    found = machine(NAVI, ARC, system="debian13", backend="vulkan").graphics
    assert found == ("firmware-intel-graphics", "firmware-amd-graphics", *MESA)


def test_a_gpu_that_no_driver_holds_is_named() -> None:
    """It is what a kernel leaves that has not found the firmware: nothing computes there before the next boot."""
    held, free = (plan_of([gpu_worker(NAVI, system="debian13", driver_of_gpus=driver), head()]) for driver in ("amdgpu", None))
    (warning,) = set(free.warnings) - set(held.warnings)
    assert warning == (
        "w1: 0000:08:00.0 Advanced Micro Devices, Inc. [AMD/ATI] Navi 48 [Radeon RX 9070/9070 XT] has no driver: if its firmware"
        " has come since the host was started, reboot it; else see `dmesg` there."
    )


def test_nothing_is_installed_on_proxmox() -> None:
    """Its own firmware package conflicts with Debian's, and it needs that."""
    plan = plan_of([gpu_worker(NAVI, system="debian12", drivers=Drivers(kernel="6.8.12-4-pve")), head()])
    assert plan.machines["w1"].graphics == ()
    assert (
        "w1: nothing is installed for its GPUs, because it runs Proxmox VE's kernel: install mesa-vulkan-drivers, libvulkan1,"
        " vulkan-tools yourself, or give the GPUs to a virtual machine."
    ) in plan.warnings


@pytest.mark.parametrize(
    ("system", "source", "packages"),
    [
        ("debian13", "distribution", ("nvidia-vulkan-icd", "libvulkan1", "vulkan-tools")),
        ("ubuntu24.04", "distribution", ("libnvidia-gl-580-server", "libvulkan1", "vulkan-tools")),
        ("ubuntu24.04", "nvidia", ("libnvidia-gl-580", "libvulkan1", "vulkan-tools")),
    ],
)
def test_nvidias_driver_comes_with_its_vulkan_part(system: str, source: str, packages: tuple[str, ...]) -> None:
    more: dict[str, Any] = {"system": system, "driver_source": source, "driver": 550 if system == "debian13" else 580}
    with_it, without = (machine(ADA, backend=backend, **more) for backend in ("vulkan", "cuda"))
    assert with_it.driver and without.driver
    assert with_it.driver.packages == (*without.driver.packages, *packages)
    assert f"install the Vulkan part of NVIDIA driver {with_it.driver}: {', '.join(packages)}" in with_it.steps


def test_a_driver_that_stays_may_lack_it() -> None:
    plan = plan_of([gpu_worker(ADA, backend="vulkan", drivers=loaded("580.95.05", "open")), head()])
    driver = plan.machines["w1"].driver
    assert driver and driver == replace(driver, packages=())
    assert (
        "w1: Vulkan needs a part of NVIDIA driver 580.95.05 that cannot be chosen here: see that `vulkaninfo --summary` lists the"
        " GPU there, or leave `backend` out to compute with CUDA."
    ) in plan.warnings
