"""How llama.cpp is built for a host: its CMake options, and the profile that names one build. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

from roles.gpus.catalog import Backend

WORKER_TARGETS = ("rpc-server",)
HEAD_TARGETS = ("llama-server", "llama-bench", "llama-fit-params")


@dataclass(frozen=True)
class Profile:
    """Names one build: hosts with the same profile share it.

    :param system: distribution and release, e.g. debian13; docker where the images decide, and not the host
    :param cpu_level: v2 or v3 (x86-64)
    :param targets: what is built
    :param options: CMake options, name → value
    :param toolkit: CUDA's minor release, e.g. 12.9; empty where there is none
    :param architectures: the GPU architectures that are compiled for, e.g. 61-real or gfx1100
    :param image: the container image that it is built in; empty where the host itself builds
    :param runtime_image: the container image that it runs in; empty where the host itself runs it
    :param recipe: SHA-256 of its Dockerfile, whatever commit that builds; empty where the host itself builds
    """

    system: str
    cpu_level: str
    backend: Backend
    targets: tuple[str, ...]
    options: Mapping[str, str]
    toolkit: str = ""
    architectures: tuple[str, ...] = ()
    image: str = ""
    runtime_image: str = ""
    recipe: str = ""

    @property
    def in_container(self) -> bool:
        """Whether it is a container image, and no folder with programs for the host."""
        return bool(self.image)

    @property
    def name(self) -> str:
        """E.g. ``debian13-v3-cpu-worker-1f0c2a`` or ``debian13-v3-cuda12.4-61-worker-1f0c2a``.

        The end is a hash of everything that goes in.
        """
        everything = [self.system, self.cpu_level, self.backend, self.targets, dict(self.options)]
        beside = [self.toolkit, self.architectures, self.image, self.runtime_image, self.recipe]
        if any(beside):
            everything += beside
        kinds = [
            kind for kind, targets in (("worker", WORKER_TARGETS), ("head", HEAD_TARGETS)) if set(targets) <= set(self.targets)
        ]
        gpus = "_".join(architecture.removesuffix("-real").replace("-", "") for architecture in self.architectures)
        digest = sha256(json.dumps(everything, sort_keys=True).encode()).hexdigest()[:6]
        parts = [self.system, self.cpu_level, self.backend + self.toolkit, gpus, *kinds, digest]
        return "-".join(part for part in parts if part)


def cmake_options(web_ui: bool, cpu_level: str, backend: Backend = "cpu", architectures: Sequence[str] = ()) -> dict[str, str]:
    """CMake options of llama.cpp, complete: nothing is left to a default that differs between two commits.

    Source of names and meanings: llama.cpp's CMakeLists.txt and ggml/CMakeLists.txt at the two commits that are tested.
    """
    wide = "ON" if cpu_level == "v3" else "OFF"
    return {
        "CMAKE_BUILD_TYPE": "Release",
        "BUILD_SHARED_LIBS": "ON",
        "GGML_NATIVE": "OFF",
        "GGML_RPC": "ON",
        "GGML_RPC_RDMA": "OFF",
        "GGML_SSE42": "ON",
        **dict.fromkeys(("GGML_AVX", "GGML_AVX2", "GGML_BMI2", "GGML_FMA", "GGML_F16C"), wide),
        "LLAMA_BUILD_TESTS": "OFF",
        "LLAMA_BUILD_EXAMPLES": "OFF",
        "LLAMA_CURL": "OFF",
        "LLAMA_OPENSSL": "OFF",
        "LLAMA_BUILD_UI": "ON" if web_ui else "OFF",
        "LLAMA_USE_PREBUILT_UI": "OFF",
        **_backend_options(backend, ";".join(architectures)),
    }


def _backend_options(backend: Backend, architectures: str) -> dict[str, str]:
    """Options of one backend.

    Source: as above, ggml/src/ggml-cuda/CMakeLists.txt, docs/build.md, and the commands of .devops/*.Dockerfile.
    """
    return {
        "cpu": {},
        "cuda": {
            "GGML_CUDA": "ON",
            "CMAKE_CUDA_ARCHITECTURES": architectures,
            # Compiled in; whether they are used is decided when llama.cpp runs, see ComputePlan.cuda_graphs.
            "GGML_CUDA_GRAPHS": "ON",
            # Left on, a library that happens to lie in the image would become a part of the release.
            "GGML_CUDA_NCCL": "OFF",
            # libcuda.so.1 comes with the driver, and no driver is there where this is built.
            "CMAKE_EXE_LINKER_FLAGS": "-Wl,--allow-shlib-undefined",
        },
        "hip": {"GGML_HIP": "ON", "GPU_TARGETS": architectures, "GGML_HIP_RCCL": "OFF"},
        "sycl": {"GGML_SYCL": "ON", "GGML_SYCL_F16": "ON", "CMAKE_C_COMPILER": "icx", "CMAKE_CXX_COMPILER": "icpx"},
        "vulkan": {"GGML_VULKAN": "ON"},
    }[backend]
