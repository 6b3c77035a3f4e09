"""Hosts that run llama.cpp in a container: what they get of their devices, what is refused, and Vulkan without a GPU."""

from __future__ import annotations

from typing import Any

import pytest

from roles.cluster.plan import Host, HostPlan
from roles.cluster.provision import MachinePlan
from tests.unit.cluster.examples import (
    ADA,
    ARC,
    BLACKWELL,
    INTEGRATED,
    NAVI,
    NAVI_22,
    PASCAL,
    gpu_worker,
    head,
    host,
    loaded,
    machine,
    plan_of,
    refusals_of,
)

B580 = "07:00.0 VGA compatible controller [0300]: Intel Corporation Battlemage G21 [Arc B580] [8086:e20b]"
MESA = ("mesa-vulkan-drivers", "libvulkan1", "vulkan-tools")
MINE = "registry.lan:5000/mine@sha256:" + "0" * 64
DRIVER = loaded("580.95.05")


def docker(*cards: str, **more: Any) -> Host:
    return gpu_worker(*cards, **{"system": "ubuntu24.04", "runtime": "docker", **more})


def planned(worker: Host) -> tuple[HostPlan, MachinePlan, list[str]]:
    """Of a worker the plan for what it runs and for its machine, and what is warned of."""
    plan = plan_of([worker, head()])
    assert plan.refusals == ()
    return plan.hosts["w1"], plan.machines["w1"], [warning for warning in plan.warnings if "w1: " in warning]


@pytest.mark.parametrize(
    ("cards", "settings", "devices"),
    [
        ([PASCAL], {}, ("nvidia.com/gpu=all",)),
        ([ARC], {}, ("/dev/dri",)),
        ([NAVI], {}, ("/dev/kfd", "/dev/dri")),
        ([NAVI], {"backend": "vulkan"}, ("/dev/dri",)),
        ([PASCAL], {"backend": "vulkan"}, ("nvidia.com/gpu=all",)),
        ([PASCAL, ARC], {"backend": "vulkan"}, ("nvidia.com/gpu=all", "/dev/dri")),
        ([PASCAL], {"backend": "cpu"}, ()),
        ([], {}, ()),
        ([], {"backend": "vulkan", "vulkan_software": True}, ()),
        ([], {"gpus": ["10de:1b06"]}, ("nvidia.com/gpu=all",)),
        ([PASCAL], {"runtime": "native"}, ()),
    ],
)
def test_a_container_gets_the_devices_that_compute(cards: list[str], settings: dict[str, Any], devices: tuple[str, ...]) -> None:
    assert planned(docker(*cards, **settings))[0].devices == devices


def test_runtime_and_memory_are_those_of_the_inventory() -> None:
    there, box, _ = planned(docker(container_memory=4096))
    assert (there.runtime, box.runtime, there.container_memory) == ("docker", "docker", 4096)
    there, box, _ = planned(docker(container_memory=4096, runtime="native"))
    assert (there.runtime, box.runtime, there.container_memory) == ("native", "native", None)


def test_a_hypervisor_that_is_nothing_else_runs_no_container() -> None:
    box = host("box", ["hypervisors"], machine("203.0.113.9"), runtime="docker")
    assert plan_of([docker(), head(), box]).machines["box"].runtime == "native"


def test_a_profile_has_images_in_a_container_alone() -> None:
    there, _, _ = planned(docker(PASCAL))
    assert there.profile.in_container
    assert there.profile.system == "docker"
    assert there.profile.image == there.compute.build_image
    assert there.profile.runtime_image == there.compute.runtime_image
    assert len(there.profile.recipe) == 64
    native, _, _ = planned(docker(PASCAL, runtime="native"))
    assert not native.profile.in_container
    assert (native.profile.runtime_image, native.profile.recipe) == ("", "")
    assert (native.profile.toolkit, native.profile.architectures) == ("12.9", ("61-real",))


@pytest.mark.parametrize(
    ("card", "system", "backend"), [(NAVI, "debian13", "hip"), (ARC, "debian13", "sycl"), (ARC, "ubuntu25.10", "sycl")]
)
def test_in_a_container_the_backend_needs_no_packages_of_the_distribution(card: str, system: str, backend: str) -> None:
    there, box, _ = planned(docker(card, system=system))
    assert there.compute.backend == backend
    assert not set(box.graphics) & set(MESA)
    assert planned(docker(card, system=system, runtime="native"))[0].compute.backend == "vulkan"


def test_a_container_brings_vulkan_and_the_host_has_the_firmware() -> None:
    _, box, _ = planned(docker(NAVI, system="debian13", backend="vulkan"))
    assert box.graphics == ("firmware-amd-graphics",)


@pytest.mark.parametrize(
    ("cards", "settings", "variables"),
    [
        ([ADA], {"cuda_graphs": False}, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "GGML_CUDA_DISABLE_GRAPHS": "1"}),
        ([ADA], {"cuda_graphs": True}, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}),
        ([PASCAL], {}, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}),
        ([ARC], {}, {"ZES_ENABLE_SYSMAN": "1", "UR_L0_ENABLE_RELAXED_ALLOCATION_LIMITS": "1"}),
        ([ARC], {"backend": "vulkan"}, {}),
        ([NAVI], {}, {}),
        ([], {"backend": "vulkan", "vulkan_software": True}, {"GGML_VK_VISIBLE_DEVICES": "0"}),
        ([ARC], {"backend": "vulkan", "vulkan_software": True}, {}),
        ([], {}, {}),
    ],
)
@pytest.mark.parametrize("runtime", ["native", "docker"])
def test_variables_of_the_backend(runtime: str, cards: list[str], settings: dict[str, Any], variables: dict[str, str]) -> None:
    assert planned(docker(*cards, runtime=runtime, **settings))[0].compute.environment == variables


# Vulkan without a GPU.


def test_without_a_gpu_vulkan_computes_by_software_if_that_is_wished() -> None:
    there, box, warnings = planned(gpu_worker(backend="vulkan", vulkan_software=True))
    assert (there.compute.backend, box.gpus, box.graphics, warnings) == ("vulkan", (), MESA, [])
    _, box, _ = planned(docker(backend="vulkan", vulkan_software=True))
    assert box.graphics == ()


def test_the_refusal_without_that_wish_names_it() -> None:
    assert refusals_of(gpu_worker(backend="vulkan")) == [
        "w1: backend = 'vulkan' has nothing to compute with here (it has no GPU of its own): correct `backend`, or leave it out"
        " and let the GPUs decide, or set `vulkan_software = True` to let the processors compute by Mesa's llvmpipe."
    ]


def test_it_has_no_effect_with_a_gpu() -> None:
    _, box, warnings = planned(docker(ARC, backend="vulkan", vulkan_software=True))
    assert [gpu.address for gpu in box.gpus] == ["0000:07:00.0"]
    assert warnings[0] == (
        "w1: vulkan_software = True has no effect: 0000:07:00.0 Intel Corporation DG2 [Arc A770] computes here, so leave it out."
    )


def test_an_integrated_gpu_is_one() -> None:
    _, box, _ = planned(gpu_worker(INTEGRATED, backend="vulkan", vulkan_software=True))
    assert len(box.gpus) == 1


# Wrong mixes.


@pytest.mark.parametrize(
    ("worker", "refusals"),
    [
        (
            docker(ADA, drivers=DRIVER, build_image="nvidia/cuda:13.2.0-devel-ubuntu24.04"),
            [
                "w1: CUDA 13.2 of `build_image` was made with NVIDIA driver 595.58.03, and this host's is 580.95.05: choose"
                " CUDA 13.0, or a newer driver, or insist with `cuda_minor_version_compatibility = True`."
            ],
        ),
        (
            docker(ADA, drivers=DRIVER, build_image=MINE, runtime_image="mine:2", cuda_toolkit="13.2"),
            [
                "w1: CUDA 13.2 was made with NVIDIA driver 595.58.03, and this host's is 580.95.05: choose CUDA 13.0, or a newer"
                " driver, or insist with `cuda_minor_version_compatibility = True`."
            ],
        ),
        (
            docker(
                PASCAL, drivers=DRIVER, build_image="mirror.lan/cuda:13.0.2-devel", runtime_image="mirror.lan/cuda:13.0.2-run"
            ),
            [
                "w1: CUDA 13.0 of `build_image` and `runtime_image` does not compile for 61-real: choose CUDA 12.9, or leave both"
                " to the GPUs."
            ],
        ),
        (
            docker(PASCAL, drivers=DRIVER, build_image=MINE, cuda_toolkit="13.0"),
            ["w1: CUDA 13.0 does not compile for 61-real: choose CUDA 12.9, or leave both to the GPUs."],
        ),
        (
            docker(BLACKWELL, drivers=loaded("580.95.05", "open"), build_image=MINE, cuda_toolkit="12.4"),
            ["w1: CUDA 12.4 does not compile for 120a-real: choose CUDA 13.0, or leave both to the GPUs."],
        ),
        (
            docker(PASCAL, drivers=DRIVER, build_image="nvidia/cuda:12.9.2-devel", runtime_image="nvidia/cuda:12.8.1-runtime"),
            [
                "w1: CUDA 12.8 and 12.9 are named by `cuda_toolkit`, `build_image` and `runtime_image`: name one toolkit in all"
                " of them."
            ],
        ),
        (
            docker(PASCAL, drivers=DRIVER, build_image=MINE, runtime_image="nvidia/cuda:12.8.1-runtime", cuda_toolkit="12.9"),
            [
                "w1: CUDA 12.8 and 12.9 are named by `cuda_toolkit`, `build_image` and `runtime_image`: name one toolkit in all"
                " of them."
            ],
        ),
        (
            docker(PASCAL, drivers=DRIVER, build_image=MINE),
            [f"w1: build_image = '{MINE}' does not say by its name which CUDA toolkit it holds: set `cuda_toolkit` to that one."],
        ),
    ],
)
def test_an_image_that_does_not_fit_is_refused(worker: Host, refusals: list[str]) -> None:
    assert refusals_of(worker) == refusals


def test_a_home_made_image_with_its_toolkit_is_taken() -> None:
    there, _, _ = planned(docker(PASCAL, drivers=DRIVER, build_image=MINE, runtime_image="mine:2", cuda_toolkit="12.4"))
    assert (there.profile.image, there.profile.runtime_image, there.profile.toolkit) == (MINE, "mine:2", "12.4")


@pytest.mark.parametrize("image", [MINE, "nvidia/cuda:12.6.3-devel-ubuntu24.04", "nvidia/cuda:13.2.0-devel-ubuntu24.04"])
def test_on_a_host_itself_no_image_decides(image: str) -> None:
    """It may be there for the other hosts, in the group `all`."""
    there, box, _ = planned(docker(PASCAL, drivers=DRIVER, build_image=image, runtime="native"))
    assert (there.profile, box.choices) == (planned(docker(PASCAL, drivers=DRIVER, runtime="native"))[0].profile, ())


def test_an_image_that_is_too_old_for_the_gpu_is_warned_of() -> None:
    (warning,) = [line for line in planned(docker(B580, backend="sycl"))[2] if "image" in line]
    assert warning == (
        "w1: intel/oneapi-toolkit:2026.1.1-devel-ubuntu24.04 and what is installed there are older than 0000:07:00.0 Intel"
        " Corporation Battlemage G21 [Arc B580]: set `runtime_image` and `build_image` to images of a later release, or backend ="
        ' "vulkan".'
    )
    for worker in (docker(ARC), docker(B580, backend="sycl", runtime_image="mine:26.04"), docker(B580, backend="vulkan")):
        assert not [line for line in planned(worker)[2] if "image" in line]


def test_what_an_own_image_of_rocm_drives_the_user_knows() -> None:
    images = {"build_image": "mine:1", "runtime_image": "mine:1"}
    assert planned(docker(NAVI_22, **images))[0].compute.architectures == ("gfx1031",)
    assert planned(docker(NAVI_22))[0].compute.backend == "vulkan"
    (refusal,) = refusals_of(docker(NAVI_22, backend="hip"))
    assert refusal.startswith("w1: backend = 'hip' has nothing to compute with here")


def test_left_to_the_plan_vulkan_takes_its_place() -> None:
    there, box, warnings = planned(docker(B580))
    assert (there.compute.backend, there.devices) == ("vulkan", ("/dev/dri",))
    assert box.choices[0] == (
        "vulkan in place of sycl, whose libraries have no code for 0000:07:00.0 Intel Corporation Battlemage G21 [Arc B580]"
    )
    assert not [line for line in warnings if "image" in line]
    assert planned(docker(B580, runtime_image="mine:26.04"))[0].compute.backend == "sycl"


@pytest.mark.parametrize(
    "settings",
    [{"build_image": "a b"}, {"runtime_image": "a\nRUN b"}, {"build_image": "$A"}, {"cmake_options": {"A": "1\nRUN 2"}}],
)
def test_what_would_be_more_than_one_word_in_a_dockerfile_is_no_setting(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="String should match pattern"):
        docker(**settings)
