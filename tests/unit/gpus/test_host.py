"""roles.gpus.host: what three facts say, put together."""

from __future__ import annotations

from dataclasses import replace

import pytest

from roles.gpus.catalog import load
from roles.gpus.driver import Drivers, Nvidia, NvidiaGpu
from roles.gpus.gpu import Gpu
from roles.gpus.host import see
from roles.gpus.lspci import parse
from roles.gpus.nvidia import parse as parse_drivers
from roles.gpus.pci import Device, LinkState

ADDRESS = "0000:01:00.0"
CARD = Device(
    ADDRESS,
    "0300",
    vendor_id="10de",
    device_id="2204",
    driver="nvidia",
    link=LinkState(16, 16, 2.5, 16.0),
    parent="0000:00:01.0",
    iommu_group=14,
)
PORT = Device("0000:00:01.0", "0604", driver="pcieport", link=LinkState(16, 16, 2.5, 16.0))
TEXT = """0000:01:00.0 VGA compatible controller [0300]: NVIDIA Corporation GA102 [GeForce RTX 3090] [10de:2204] (rev a1)
\tKernel modules: nouveau, nvidia
"""


def only(*devices: Device, said: NvidiaGpu | None = None, text: str = "") -> Gpu:
    """The one GPU among the devices."""
    drivers = Drivers(nvidia=Nvidia(gpus={ADDRESS: said} if said else {}))
    (gpu,) = see(devices, parse(text), drivers, load())
    return gpu


def test_each_of_the_three_says_what_it_alone_knows() -> None:
    gpu = only(CARD, PORT, said=NvidiaGpu(memory_mib=24576, performance=8, load_percent=0), text=TEXT)
    assert (gpu.name, gpu.chip, gpu.generation) == ("NVIDIA Corporation GA102 [GeForce RTX 3090]", "GA102", "ampere")
    assert (gpu.driver, gpu.modules, gpu.iommu_group) == ("nvidia", ("nouveau", "nvidia"), 14)
    assert gpu.memory_mib == 24576
    assert gpu.link and (gpu.link.verdict, gpu.link.measured_at, gpu.link.port) == ("idle", ADDRESS, "0000:00:01.0")


@pytest.mark.parametrize(
    ("row", "verdict"),
    [
        ("1, 4, 16, 16, P8, 0", "idle"),
        ("3, 3, 4, 16, P0, 0", "narrow"),
        ("1, 3, 16, 16, P0, 0", "slow"),
        ("1, 3, 16, 16, P2, 0", "slow"),
        ("1, 3, 16, 16, P3, 0", "idle"),
        ("1, 3, 16, 16, P5, 9", "idle"),
        ("1, 3, 16, 16, P5, 10", "slow"),
        ("3, 3, 16, 16, P0, 90", "full"),
    ],
)
@pytest.mark.parametrize("shown", [True, False], ids=["host", "guest"])
def test_a_slow_link_is_a_fault_only_while_the_gpu_works(row: str, verdict: str, shown: bool) -> None:
    """The first three rows are those of field report B21; in a guest the numbers are all that there is."""
    generation, most, width, widest, state, busy = row.split(", ")
    drivers = parse_drivers(
        [f"smi 00000000:01:00.0, 24576, 0, {state}, {busy}, {generation}, {most}, {width}, {widest}, Disabled, 8.6"]
    )
    speeds = {"1": 2.5, "3": 8.0, "4": 16.0}
    link = LinkState(int(width), int(widest), speeds[generation], speeds[most])
    device = replace(CARD, link=link if shown else None, parent=None)
    (gpu,) = see([device], [], drivers, load())
    assert gpu.link and gpu.link.verdict == verdict
    assert gpu.link.measured_at == (ADDRESS if shown else "nvidia-smi")
    assert (gpu.link.width, gpu.link.max_speed_gts) == (link.width, link.max_speed_gts)


GUEST = replace(CARD, link=None)
FOUR_LANES = NvidiaGpu(width=4, max_width=16, generation=1, max_generation=3, performance=8)


def test_the_ports_of_a_guest_say_nothing_of_the_slot() -> None:
    virtual = replace(PORT, link=LinkState(1, 1, 2.5, 2.5))
    assert only(GUEST, virtual).link.verdict == "slot"  # type: ignore[union-attr]
    link = only(GUEST, virtual, said=FOUR_LANES).link
    assert link and (link.verdict, link.max_width, link.max_speed_gts, link.port) == ("narrow", 16, 8.0, None)


def test_a_guest_whose_driver_does_not_answer_has_to_ask_the_hypervisor() -> None:
    link = only(GUEST).link
    assert link and link.verdict == "unknown" and "hypervisor" in link.reason


@pytest.mark.parametrize(("state", "verdict"), [({"asleep": True}, "unknown"), ({"dead": True}, "unreachable")])
def test_what_sleeps_or_is_dead_stays_so_whatever_the_driver_remembers(state: dict[str, bool], verdict: str) -> None:
    link = only(replace(GUEST, **state), said=FOUR_LANES).link  # type: ignore[arg-type]
    assert link and link.verdict == verdict and link.measured_at != "nvidia-smi"


def test_a_gpu_that_the_catalog_does_not_know_says_its_own_capability() -> None:
    unknown = replace(CARD, device_id="ffff")
    assert only(unknown, said=NvidiaGpu(compute_capability="15.0")).compute_capability == "15.0"
    assert only(CARD, said=NvidiaGpu(compute_capability="15.0")).compute_capability == "8.6"


def test_the_memory_of_a_card_of_amd_comes_from_its_kernel_driver() -> None:
    assert (
        only(Device(ADDRESS, "0300", vendor_id="1002", device_id="744c", driver="amdgpu", memory_mib=24560)).memory_mib == 24560
    )


def test_gpus_come_in_the_order_of_their_addresses_and_nothing_else_comes() -> None:
    second = replace(CARD, address="0000:02:00.0")
    assert [gpu.address for gpu in see([second, PORT, CARD], [], Drivers(), load())] == [ADDRESS, "0000:02:00.0"]


def test_a_host_that_shows_nothing_has_no_gpus() -> None:
    assert see([], [], Drivers(), load()) == []
