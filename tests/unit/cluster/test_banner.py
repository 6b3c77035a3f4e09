"""What a worker says that it serves."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roles.cluster.banner import Device, devices, exceeds, lacks

ANSWERS = Path(__file__).parents[1] / "verify/answers"

# Recorded: 0c1e570 in a container on Debian 13, whose streams the journal has in the order in which they came.
CPU = """\
Started rpc-server.service - llama.cpp RPC server.
Starting RPC server v7.0.0
  endpoint       : 198.18.85.11:50052
  local cache    : /var/cache/llama.cpp/rpc
Devices:
  CPU: Intel(R) Xeon(R) Processor (24105 MiB, 24105 MiB free)
  transport      : TCP
WARNING: Host ('198.18.85.11') is != '127.0.0.1'
""".splitlines()


PROCESSORS = Device("CPU", "Intel(R) Xeon(R) Processor")
CARD = Device("CUDA0", "NVIDIA GeForce GTX 1080 Ti")
OTHER = Device("CUDA1", "NVIDIA GeForce RTX 5060 Ti")


@pytest.mark.parametrize("file", ["rpc-server-old.journal", "rpc-server-new.journal", "cuda-fell-back.journal"])
def test_the_processors(file: str) -> None:
    assert devices((ANSWERS / file).read_text().splitlines()) == devices(CPU) == (PROCESSORS,)


def test_it_may_serve_several_and_a_backend_may_speak_in_between() -> None:
    lines = [
        "Devices:",
        "  CUDA0: NVIDIA GeForce GTX 1080 Ti (11172 MiB, 11000 MiB free)",
        "ggml_cuda: something (1 of 2)",
        "  CUDA1: NVIDIA GeForce RTX 5060 Ti (16311 MiB, 16000 MiB free)",
        "  transport      : TCP (RDMA auto-negotiate enabled)",
    ]
    assert devices(lines) == (CARD, OTHER)
    # It makes a device ready before it names the next one.
    assert devices(lines[:-1]) == devices(lines[:2]) == ()


def test_a_description_may_hold_what_ends_it() -> None:
    said = ["Devices:", "  Vulkan1: Intel(R) Arc(tm) A770 Graphics (DG2) (16032 MiB, 14428 MiB free)", "  transport      : TCP"]
    assert devices(said) == (Device("Vulkan1", "Intel(R) Arc(tm) A770 Graphics (DG2)"),)


def test_the_last_start_counts() -> None:
    again = [line.replace("CPU: Intel(R) Xeon(R) Processor", "Vulkan0: llvmpipe (LLVM 19.1.7, 256 bits)") for line in CPU]
    assert devices([*CPU, *again]) == (Device("Vulkan0", "llvmpipe (LLVM 19.1.7, 256 bits)"),)


def test_devices_that_it_only_lists_are_not_served() -> None:
    """What it says at a name that it does not know, right before it ends."""
    assert devices(["error: unknown device: CUDA7", "available devices:", "  CPU: Some CPU (1 MiB, 1 MiB free)"]) == ()


@pytest.mark.parametrize(
    ("device", "wanted"),
    [("CUDA0", "cuda"), ("ROCm12", "hip"), ("SYCL0", "sycl"), ("Vulkan1", "vulkan"), ("CPU", "cpu"), ("Metal", "metal")],
)
def test_the_backend_of_a_device(device: str, wanted: str) -> None:
    assert Device(device, "of some kind").backend == wanted


@pytest.mark.parametrize(
    ("served", "gpus", "lack"),
    [
        ([CARD, OTHER], 2, ""),
        ([CARD, PROCESSORS], 1, ""),
        # The inventory names them, or llvmpipe computes: one of the backend is enough.
        ([CARD], 0, ""),
        ([CARD], 2, "serves CUDA0 (NVIDIA GeForce GTX 1080 Ti), and 2 GPUs are to compute"),
        (
            [CARD, PROCESSORS],
            2,
            "serves CUDA0 (NVIDIA GeForce GTX 1080 Ti), CPU (Intel(R) Xeon(R) Processor), and 2 GPUs are to compute",
        ),
        ([PROCESSORS], 0, "serves CPU (Intel(R) Xeon(R) Processor), and no device of the backend cuda that is planned"),
        ([PROCESSORS], 1, "serves CPU (Intel(R) Xeon(R) Processor), and no device of the backend cuda that is planned"),
        # It has not said it yet, or the journal is gone.
        ([], 2, ""),
    ],
)
def test_a_worker_that_serves_too_little(served: list[Device], gpus: int, lack: str) -> None:
    assert lacks(served, "cuda", gpus) == lack
    assert lacks(served, "", gpus) == ""


@pytest.mark.parametrize(
    ("gpus", "surplus"),
    [
        (1, "serves CUDA0 (NVIDIA GeForce GTX 1080 Ti), CUDA1 (NVIDIA GeForce RTX 5060 Ti), and 1 GPU is to compute"),
        (2, ""),
        (3, ""),
        (0, ""),
    ],
)
def test_a_worker_that_serves_too_much(gpus: int, surplus: str) -> None:
    assert exceeds([CARD, OTHER], gpus) == surplus


@given(st.lists(st.text() | st.sampled_from(CPU)))
def test_no_journal_makes_it_fail(lines: list[str]) -> None:
    assert all(device.backend for device in devices(lines))
