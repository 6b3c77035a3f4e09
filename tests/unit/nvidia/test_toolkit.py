"""Which hosts need what of the CUDA toolkit."""

from __future__ import annotations

from typing import Any

import pytest

from roles.cluster.plan import HostPlan
from roles.gpus.catalog import load
from roles.nvidia import toolkit
from tests.unit.cluster.examples import ADA, PASCAL, gpu_worker, head, loaded, plan_of

CATALOG = load()
ALL, RUNTIME = ("nvidia-cuda-toolkit", "g++-13"), ("libcudart12", "libcublas12")


def plans(card: str = PASCAL, **settings: Any) -> tuple[HostPlan, HostPlan]:
    """Two hosts with the same profile: one that builds, and one that gets what it has built."""
    first = gpu_worker(card, **settings)
    other = gpu_worker(card, name="w2", address="192.0.2.12", **settings)
    plan = plan_of([first, other, head()])
    assert plan.refusals == ()
    assert plan.hosts["w2"].builder == "w1"
    return plan.hosts["w1"], plan.hosts["w2"]


@pytest.mark.parametrize(
    ("wish", "builds", "fetches"), [(None, ALL, RUNTIME), (True, ALL, ALL), (False, (), ())], ids=["default", "true", "false"]
)
def test_one_host_builds_and_the_other_needs_libraries_alone(
    wish: bool | None, builds: tuple[str, ...], fetches: tuple[str, ...]
) -> None:
    assert tuple(toolkit.packages(plan, wish, CATALOG) for plan in plans()) == (builds, fetches)


@pytest.mark.parametrize("wish", [None, True])
@pytest.mark.parametrize("settings", [{"runtime": "docker"}, {"backend": "vulkan"}, {"backend": "cpu"}], ids=str)
def test_without_cuda_on_the_host_itself_nothing_is_needed(settings: dict[str, Any], wish: bool | None) -> None:
    for plan in plans(**settings):
        assert toolkit.packages(plan, wish, CATALOG) == ()
        assert toolkit.refusal(plan, wish, CATALOG) == ""


def test_what_no_source_has_is_refused_unless_the_user_sees_to_it() -> None:
    for plan in plans(system="debian12", drivers=loaded("535.309.01")):
        assert plan.compute.toolkit == "12.2"
        assert toolkit.refusal(plan, None, CATALOG).startswith("its release needs CUDA 12.2, and for Debian 12 there is no")
        assert toolkit.refusal(plan, True, CATALOG)
        assert toolkit.refusal(plan, False, CATALOG) == ""
        assert toolkit.packages(plan, True, CATALOG) == ()


@pytest.mark.parametrize(
    ("card", "settings", "found"),
    [
        (PASCAL, {}, {"CMAKE_CUDA_COMPILER": "/usr/bin/nvcc", "CMAKE_CUDA_HOST_COMPILER": "g++-13"}),
        (ADA, {"system": "ubuntu24.04"}, {"CMAKE_CUDA_COMPILER": "/usr/local/cuda-13.0/bin/nvcc"}),
        (PASCAL, {"system": "debian12"}, {"CMAKE_CUDA_COMPILER": "/usr/local/cuda-12.9/bin/nvcc"}),
        (PASCAL, {"runtime": "docker"}, {}),
        (PASCAL, {"backend": "cpu"}, {}),
        (
            PASCAL,
            {"cmake_options": {"CMAKE_CUDA_COMPILER": "/opt/nvcc"}, "system": "debian12"},
            {"CMAKE_CUDA_COMPILER": "/opt/nvcc"},
        ),
    ],
)
def test_cmake_is_told_where_the_toolkit_is(card: str, settings: dict[str, Any], found: dict[str, str]) -> None:
    for plan in plans(card, **settings):
        assert {name: value for name, value in plan.profile.options.items() if name.endswith("_COMPILER")} == found
