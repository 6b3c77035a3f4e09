"""What a worker says that it serves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roles.cluster.banner import backend, devices

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


def test_the_processors() -> None:
    assert devices(CPU) == ("CPU",)


def test_it_may_serve_several_and_a_backend_may_speak_in_between() -> None:
    lines = [
        "Devices:",
        "  CUDA0: NVIDIA GeForce GTX 1080 Ti (11172 MiB, 11000 MiB free)",
        "ggml_cuda: something (1 of 2)",
        "  CUDA1: NVIDIA GeForce RTX 5060 Ti (16311 MiB, 16000 MiB free)",
    ]
    assert devices(lines) == ("CUDA0", "CUDA1")


def test_the_last_start_counts() -> None:
    again = [line.replace("CPU: Intel(R) Xeon(R) Processor", "Vulkan0: llvmpipe (LLVM 19.1.7, 256 bits)") for line in CPU]
    assert devices([*CPU, *again]) == ("Vulkan0",)


def test_devices_that_it_only_lists_are_not_served() -> None:
    """What it says at a name that it does not know, right before it ends."""
    assert devices(["error: unknown device: CUDA7", "available devices:", "  CPU: Some CPU (1 MiB, 1 MiB free)"]) == ()


@pytest.mark.parametrize(
    ("device", "wanted"),
    [("CUDA0", "cuda"), ("ROCm12", "hip"), ("SYCL0", "sycl"), ("Vulkan1", "vulkan"), ("CPU", "cpu"), ("Metal", "metal")],
)
def test_the_backend_of_a_device(device: str, wanted: str) -> None:
    assert backend(device) == wanted


@given(st.lists(st.text() | st.sampled_from(CPU)))
def test_no_journal_makes_it_fail(lines: list[str]) -> None:
    assert all(backend(device) for device in devices(lines))
