"""What llama.cpp is compiled with and for."""

from typing import Any

import pytest

from roles.cluster.plan import Host, Plan
from roles.cluster.toolkit import ComputePlan, architecture
from tests.unit.cluster.examples import (
    ADA,
    ARC,
    BLACKWELL,
    NAVI,
    PASCAL,
    TURING,
    gpu_worker,
    head,
    loaded,
    plan_of,
    refusals_of,
)

VOLTA = "0a:00.0 3D controller [0302]: NVIDIA Corporation GV100GL [Tesla V100 PCIe 16GB] [10de:1db4] (rev a1)"


def second(*texts: str, **more: Any) -> Host:
    return gpu_worker(*texts, name="w2", address="192.0.2.12", **more)


def planned(*hosts: Host) -> Plan:
    """The plan with a head that needs nothing."""
    plan = plan_of([*hosts, head()])
    assert plan.refusals == ()
    return plan


def compute(worker: Host) -> ComputePlan:
    return planned(worker).hosts["w1"].compute


@pytest.mark.parametrize(
    ("cards", "version", "toolkit", "architectures"),
    [
        ([PASCAL], "580.173.02", "12.9", ("61-real",)),
        ([PASCAL], "575.51.03", "12.8", ("61-real",)),
        ([PASCAL], "550.163.01", "12.4", ("61-real",)),
        ([PASCAL], "535.261.03", "12.2", ("61-real",)),
        ([ADA], "610.43.02", "13.3", ("89-real",)),
        ([ADA], "610.43.01", "13.2", ("89-real",)),
        ([ADA], "580.178.04", "13.0", ("89-real",)),
        ([ADA], "620.10.01", "13.4", ("89-real",)),
        ([BLACKWELL], "570.124.06", "12.8", ("120a-real",)),
        ([BLACKWELL], "595.71.05", "13.2", ("120a-real",)),
        ([PASCAL, TURING], "580.173.02", "12.9", ("61-real", "75-real")),
        ([TURING, ADA], "580.173.02", "13.0", ("75-real", "89-real")),
    ],
)
def test_the_newest_toolkit_that_is_not_newer_than_the_driver_and_compiles_for_all(
    cards: list[str], version: str, toolkit: str, architectures: tuple[str, ...]
) -> None:
    plan = compute(gpu_worker(*cards, drivers=loaded(version)))
    assert (plan.toolkit, plan.architectures) == (toolkit, architectures)
    assert plan.build_image.startswith(f"nvidia/cuda:{toolkit}.")
    assert "-devel-" in plan.build_image
    assert plan.runtime_image == plan.build_image.replace("-devel-", "-runtime-")


def test_the_driver_that_is_to_come_decides_where_there_is_none() -> None:
    assert compute(gpu_worker(PASCAL, system="debian13")).toolkit == "12.4"
    assert compute(gpu_worker(PASCAL, system="ubuntu26.04")).toolkit == "12.9"


def test_what_goes_to_cmake() -> None:
    options = (
        planned(gpu_worker(PASCAL, BLACKWELL.replace("05:00", "09:00"), passthrough=["09:00.0"])).hosts["w1"].profile.options
    )
    assert options["GGML_CUDA"] == "ON"
    assert options["CMAKE_CUDA_ARCHITECTURES"] == "61-real"
    assert options["GGML_NATIVE"] == "OFF"
    assert options["CMAKE_EXE_LINKER_FLAGS"] == "-Wl,--allow-shlib-undefined"


@pytest.mark.parametrize(
    ("worker", "backend", "option", "value"),
    [
        (gpu_worker(NAVI, system="ubuntu24.04"), "hip", "GPU_TARGETS", "gfx1201"),
        (gpu_worker(ARC, system="ubuntu24.04"), "sycl", "CMAKE_CXX_COMPILER", "icpx"),
        (gpu_worker(ARC), "vulkan", "GGML_VULKAN", "ON"),
    ],
)
def test_other_backends_have_images_and_options_too(worker: Host, backend: str, option: str, value: str) -> None:
    there = planned(worker).hosts["w1"]
    assert there.profile.options[option] == value
    assert "GGML_CUDA" not in there.profile.options
    assert (there.compute.backend, there.compute.toolkit, there.compute.cuda_graphs) == (backend, None, None)
    assert there.compute.build_image


def test_a_profile_names_backend_toolkit_and_architectures() -> None:
    cuda = planned(gpu_worker(PASCAL, TURING, system="ubuntu24.04")).hosts["w1"].release
    hip = planned(gpu_worker(NAVI, system="ubuntu24.04")).hosts["w1"].release
    assert cuda.startswith("222222222222-ubuntu24.04-v3-cuda12.9-61_75-worker-")
    assert hip.startswith("222222222222-ubuntu24.04-v3-hip-gfx1201-worker-")


@pytest.mark.parametrize(
    "setting",
    [
        {"cuda_toolkit": "12.8"},
        {"cuda_architectures": ["61-real", "75-real"]},
        {"runtime": "docker"},
    ],
)
def test_whatever_goes_into_a_build_makes_another_release(setting: dict[str, Any]) -> None:
    one = gpu_worker(PASCAL, system="debian12")
    other = gpu_worker(PASCAL, system="debian12", **setting)
    assert planned(one).hosts["w1"].release != planned(other).hosts["w1"].release


def test_hosts_with_the_same_gpus_share_a_build() -> None:
    plan = planned(gpu_worker(PASCAL), second(PASCAL))
    assert plan.hosts["w2"].builder == "w1"


# One toolkit for several.


def test_by_itself_each_host_has_the_toolkit_that_suits_it() -> None:
    plan = planned(gpu_worker(PASCAL, system="debian12"), second(BLACKWELL, system="debian12"))
    assert [plan.hosts[name].compute.toolkit for name in ("w1", "w2")] == ["12.9", "13.0"]


def test_a_shared_toolkit_has_code_for_the_gpus_of_all() -> None:
    shared = {"system": "debian12", "cuda_shared_toolkit": True}
    plan = planned(gpu_worker(PASCAL, **shared), second(BLACKWELL, **shared))
    assert {plan.hosts[name].compute.toolkit for name in ("w1", "w2")} == {"12.9"}
    assert {plan.hosts[name].compute.architectures for name in ("w1", "w2")} == {("61-real", "120a-real")}
    assert plan.hosts["w2"].builder == "w1"
    assert plan.machines["w1"].choices == ()
    assert plan.machines["w2"].choices == ("cuda_shared_toolkit = True from the inventory: CUDA 12.9 in place of 13.0",)


def test_a_toolkit_is_only_shared_by_those_who_say_so() -> None:
    plan = planned(gpu_worker(PASCAL, system="debian12", cuda_shared_toolkit=True), second(BLACKWELL, system="debian12"))
    assert [plan.hosts[name].compute.toolkit for name in ("w1", "w2")] == ["12.9", "13.0"]


def test_a_toolkit_that_cannot_be_shared_is_refused() -> None:
    shared = {"system": "debian13", "cuda_shared_toolkit": True}
    assert refusals_of(gpu_worker(PASCAL, **shared), second(BLACKWELL, **shared)) == [
        f"{name}: no one CUDA toolkit compiles for the GPUs of all hosts with `cuda_shared_toolkit` and suits their drivers"
        f" (here {version}): take it out for this host, which then gets a toolkit of its own."
        for name, version in (("w1", "550.163.01"), ("w2", "595.71.05"))
    ]


# What the inventory says.


def test_a_setting_wins_and_is_said() -> None:
    plan = planned(gpu_worker(ADA, drivers=loaded("610.43.02"), cuda_toolkit="12.9", cuda_architectures=["86-real", "89"]))
    assert plan.hosts["w1"].compute.toolkit == "12.9"
    assert plan.hosts["w1"].compute.architectures == ("86-real", "89")
    assert plan.machines["w1"].choices == (
        "cuda_toolkit = '12.9' from the inventory, in place of 13.3",
        "cuda_architectures = '86-real;89' from the inventory, in place of 89-real",
    )


def test_images_of_the_inventory_are_taken_and_said() -> None:
    images = {
        "build_image": "mirror.example/cuda:12.9.2-devel-ubuntu24.04",
        "runtime_image": "mirror.example/cuda:12.9.2-runtime",
    }
    plan = planned(gpu_worker(PASCAL, system="debian12", runtime="docker", **images))
    there = plan.hosts["w1"]
    assert there.compute.toolkit == "12.9"
    assert there.profile.image == there.compute.build_image == images["build_image"]
    assert there.profile.runtime_image == there.compute.runtime_image == images["runtime_image"]
    assert plan.machines["w1"].choices[0] == (
        "build_image = 'mirror.example/cuda:12.9.2-devel-ubuntu24.04' from the inventory,"
        " in place of nvidia/cuda:12.9.2-devel-ubuntu24.04"
    )


def test_an_older_toolkit_may_be_named_by_its_image_alone() -> None:
    plan = compute(gpu_worker(PASCAL, system="debian12", runtime="docker", build_image="nvidia/cuda:12.6.3-devel-ubuntu22.04"))
    assert (plan.toolkit, plan.runtime_image) == ("12.6", "nvidia/cuda:12.6.3-runtime-ubuntu24.04")


def test_the_user_may_insist_on_a_toolkit_that_is_newer_than_the_driver() -> None:
    insists = {"cuda_toolkit": "13.3", "cuda_minor_version_compatibility": True}
    plan = planned(gpu_worker(ADA, drivers=loaded("580.95.05"), **insists))
    assert plan.hosts["w1"].compute.toolkit == "13.3"
    assert plan.machines["w1"].choices == (
        "cuda_toolkit = '13.3' from the inventory, in place of 13.0",
        "cuda_minor_version_compatibility = True from the inventory: CUDA 13.3 was made with NVIDIA driver 610.43.02,"
        " and this host's is 580.95.05",
    )


@pytest.mark.parametrize(
    ("worker", "refusals"),
    [
        (
            gpu_worker(ADA, drivers=loaded("580.95.05"), runtime="docker", build_image="nvidia/cuda:13.2.0-devel-ubuntu24.04"),
            [
                "w1: CUDA 13.2 of `build_image` was made with NVIDIA driver 595.58.03, and this host's is 580.95.05: choose"
                " CUDA 13.0, or a newer driver, or insist with `cuda_minor_version_compatibility = True`."
            ],
        ),
        (
            gpu_worker(ADA, drivers=loaded("550.163.01"), cuda_toolkit="13.0", cuda_minor_version_compatibility=True),
            [
                "w1: CUDA 13.0 was made with NVIDIA driver 580.95.05, and this host's is 550.163.01, which is older than its"
                " floor 580: choose CUDA 12.4, or a newer driver."
            ],
        ),
        (
            gpu_worker(PASCAL, drivers=loaded("580.95.05"), cuda_toolkit="13.0"),
            ["w1: CUDA 13.0 does not compile for 61-real: choose CUDA 12.9, or leave both to the GPUs."],
        ),
        (
            gpu_worker(ADA, drivers=loaded("560.35.05"), cuda_architectures=["89-real", "120a-real"]),
            ["w1: CUDA 12.6 does not compile for 120a-real: correct `cuda_architectures`, or leave both to the GPUs."],
        ),
        (
            gpu_worker(ADA, drivers=loaded("580.95.05"), cuda_toolkit="12.7"),
            [
                "w1: the catalog knows no CUDA toolkit 12.7 (it has 12.2, 12.4, 12.6, 12.8, 12.9, 13.0, 13.1, 13.2, 13.3, 13.4):"
                " choose one of these."
            ],
        ),
        (
            gpu_worker(
                ADA, drivers=loaded("580.95.05"), runtime="docker", cuda_toolkit="12.9", runtime_image="cuda:13.0.2-runtime"
            ),
            [
                "w1: CUDA 12.9 and 13.0 are named by `cuda_toolkit`, `build_image` and `runtime_image`: name one toolkit in all"
                " of them."
            ],
        ),
        (
            gpu_worker(ADA, drivers=loaded("580.95.05"), cuda_architectures=["75-real"]),
            [
                "w1: the architectures hold no code for 0000:03:00.0 NVIDIA Corporation AD102 [GeForce RTX 4090] (compute"
                " capability 8.9): add 89-real to `cuda_architectures`, or leave it out."
            ],
        ),
        (
            gpu_worker(BLACKWELL, drivers=loaded("560.35.05", "open"), driver="unmanaged"),
            [
                "w1: driver = 'unmanaged' and branch 560 is too old for 0000:05:00.0 NVIDIA Corporation GB206 [GeForce RTX 5060"
                " Ti], which needs 570 or newer: install another driver, or leave `driver` out."
            ],
        ),
        (
            gpu_worker(ADA, drivers=loaded("525.60.13"), driver="unmanaged"),
            [
                "w1: no CUDA toolkit compiles for 0000:03:00.0 NVIDIA Corporation AD102 [GeForce RTX 4090] and is as old as its"
                " driver 525.60.13: let `driver` choose a newer one, or set `cuda_toolkit`."
            ],
        ),
    ],
)
def test_a_refusal_names_host_thing_reason_and_way_out(worker: Host, refusals: list[str]) -> None:
    assert refusals_of(worker) == refusals


# Code for GPUs.


def test_ptx_that_the_driver_cannot_compile_is_refused() -> None:
    """Minor version compatibility leaves PTX out: cudaErrorUnsupportedPtxVersion."""
    insists = {"cuda_toolkit": "12.9", "cuda_minor_version_compatibility": True, "cuda_architectures": ["61-virtual"]}
    (refusal,) = refusals_of(gpu_worker(PASCAL, drivers=loaded("535.261.03"), **insists))
    assert refusal.endswith(
        "NVIDIA driver 535.261.03 cannot, since it is older than CUDA 12.9: add 61-real to `cuda_architectures`."
    )


@pytest.mark.parametrize(
    ("capability", "wanted"), [("6.1", "61-real"), ("8.9", "89-real"), ("10.0", "100-real"), ("12.0", "120a-real")]
)
def test_architectures_are_named_as_cmake_names_them(capability: str, wanted: str) -> None:
    assert architecture(capability) == wanted


@pytest.mark.parametrize(
    ("card", "architectures", "warned"),
    [
        (ADA, ["89-real"], False),
        (ADA, ["86-real"], False),
        (ADA, ["89"], False),
        (ADA, ["89-virtual"], True),
        (ADA, ["75-virtual"], True),
        (ADA, ["75"], True),
        (ADA, ["75-virtual", "89-real"], False),
        (BLACKWELL, ["120a-real"], False),
        (BLACKWELL, ["120"], False),
        (BLACKWELL, ["120a-virtual"], True),
        (BLACKWELL, ["90-virtual"], True),
    ],
)
def test_builds_with_nothing_but_ptx_for_a_gpu_are_warned_about(card: str, architectures: list[str], warned: bool) -> None:
    plan = planned(gpu_worker(card, drivers=loaded("580.95.05", "open"), cuda_architectures=architectures))
    assert [warning.partition(" for ")[0] for warning in plan.warnings] == ["w1: the architectures hold nothing but PTX"] * warned


# CUDA graphs.


@pytest.mark.parametrize(
    ("cards", "wish", "used"),
    [
        ([PASCAL], None, False),
        ([VOLTA], None, True),
        ([ADA], None, True),
        ([PASCAL, VOLTA], None, True),
        ([ADA], False, False),
        ([PASCAL], True, False),
    ],
)
def test_llama_cpp_uses_cuda_graphs_from_volta_on(cards: list[str], wish: bool | None, used: bool) -> None:
    worker = gpu_worker(*cards, drivers=loaded("580.95.05"), cuda_graphs=wish)
    assert compute(worker).cuda_graphs is used


def test_what_has_no_effect_is_warned_about() -> None:
    plan = planned(gpu_worker(PASCAL, drivers=loaded("580.95.05"), cuda_graphs=True))
    assert plan.warnings == (
        "w1: cuda_graphs = True has no effect: llama.cpp uses CUDA graphs from compute capability 7.0 on, so leave it out.",
    )


def test_cuda_graphs_on_one_card_and_not_on_another_are_warned_about() -> None:
    drivers = loaded("580.95.05")
    plan = planned(gpu_worker(PASCAL, drivers=drivers), second(ADA, drivers=drivers))
    assert plan.warnings == (
        "inventory: CUDA graphs are on for AD102 of w2, and off for GP102 of w1: set `cuda_graphs = False` to have them alike.",
    )
    alike = planned(gpu_worker(PASCAL, drivers=drivers), second(ADA, drivers=drivers, cuda_graphs=False))
    assert alike.warnings == ()
    assert alike.machines["w2"].choices == ("cuda_graphs = False from the inventory, in place of True",)
    assert planned(gpu_worker(PASCAL, VOLTA, drivers=drivers)).warnings != ()
