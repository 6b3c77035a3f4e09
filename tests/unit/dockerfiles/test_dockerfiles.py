"""The Dockerfiles: each is the one in its file, passes hadolint, and its long RUN does what the build on a host itself does."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from roles.cluster import dockerfile as module
from roles.cluster.dockerfile import LABEL, REVISION, dockerfile, with_recipe
from roles.cluster.plan import Host, HostPlan
from tests.conftest import ROOT
from tests.unit.cluster.examples import OLDER, PASCAL, gpu_worker, head, loaded, plan_of
from tests.unit.dockerfiles import HERE, file, plans, text
from tests.unit.llama_cpp.test_recipe import STAND_INS, UNUSED

PROBLEMATIC = {"CMAKE_CXX_FLAGS": "-O2 '$HOME' \"x\" \\"}


def docker_worker(*cards: str, **more: Any) -> Host:
    return gpu_worker(*cards, **{"system": "debian12", "runtime": "docker", **more})


def planned(worker: Host) -> HostPlan:
    plan = plan_of([worker, head()])
    assert plan.refusals == ()
    return plan.hosts["w1"]


def instructions(dockerfile: str) -> list[str]:
    """What BuildKit makes of the text: comments gone, lines that end in a backslash joined with the next."""
    lines = [line for line in dockerfile.splitlines() if not line.lstrip().startswith("#")]
    return [line for line in re.sub(r"\\\n", "", "\n".join(lines)).splitlines() if line]


def labels(dockerfile: str) -> dict[str, str]:
    """As `docker image inspect` would show them."""
    (line,) = [line for line in instructions(dockerfile) if line.startswith("LABEL")]
    # A dollar sign without a backslash would be a variable's.
    found = re.findall(r'([a-z.]+)="((?:[^"\\$]|\\.)*)"', line)
    return {name: re.sub(r"\\(.)", r"\1", value) for name, value in found}


def test_there_are_no_other_files() -> None:
    assert sorted(path.stem for path in HERE.glob("*.Dockerfile")) == sorted(plans())


@pytest.mark.parametrize("name", sorted(plans()))
def test_the_dockerfile_is_the_one_in_the_file(name: str) -> None:
    there = plans()[name]
    assert text(there) == file(name).read_text()
    assert text(there) == text(there)


def test_hadolint_finds_nothing() -> None:
    beside = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    hadolint = shutil.which("hadolint", path=beside)
    assert hadolint, "hadolint is missing: make setup"
    command = [hadolint, "--no-color", "--config", ROOT / ".hadolint.yaml", *sorted(HERE.glob("*.Dockerfile"))]
    ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert (ended.returncode, ended.stdout) == (0, "")


@pytest.mark.parametrize("name", sorted(plans()))
def test_buildkit_of_docker_20_10_can_read_it(name: str) -> None:
    """It knows no heredocs, and a syntax line would fetch a frontend from a registry."""
    found = text(plans()[name])
    assert "syntax=" not in found
    assert "<<" not in found
    assert "\\\n\n" not in found
    assert {line.split()[0] for line in instructions(found)} == {"FROM", "ARG", "RUN", "COPY", "USER", "ENTRYPOINT", "LABEL"}


@pytest.mark.parametrize("name", sorted(plans()))
def test_nothing_is_fetched_but_by_those_who_verify_it(name: str) -> None:
    assert not re.search(r"\b(curl|wget|ADD|git clone|pip)\b", text(plans()[name]))


@pytest.mark.parametrize("name", sorted(plans()))
def test_the_image_says_what_it_is_and_runs_as_nobody_special(name: str) -> None:
    there = plans()[name]
    found = text(there)
    said = labels(found)
    assert said[REVISION] == there.commit
    assert said[f"{LABEL}release"] == there.release
    assert said[f"{LABEL}backend"] == there.profile.backend
    assert said[f"{LABEL}targets"].split() == list(there.profile.targets)
    assert said.get(f"{LABEL}toolkit", "") == there.profile.toolkit
    assert said.get(f"{LABEL}architectures", "").split() == list(there.profile.architectures)
    assert dict(option.split("=", 1) for option in said[f"{LABEL}options"].split()) == there.profile.options
    assert re.search(r"^USER [1-9][0-9]*:[1-9][0-9]*$", found, re.MULTILINE)
    assert f"COPY --from=build /release /opt/llama.cpp/releases/{there.release}\n" in found


@pytest.mark.parametrize(
    ("name", "generation"), [("pascal", "Pascal"), ("hopper", "Hopper"), ("blackwell", "Blackwell"), ("rdna3", "RDNA 3")]
)
def test_the_image_names_the_generation_of_its_gpus(name: str, generation: str) -> None:
    assert labels(text(plans()[name]))[f"{LABEL}generation"] == generation


def test_several_generations_are_all_named() -> None:
    there = planned(docker_worker(PASCAL, system="ubuntu24.04", cuda_architectures=["61-real", "70", "75-real"]))
    assert labels(text(there))[f"{LABEL}generation"] == "Pascal, Volta, Turing"


def test_whatever_an_option_holds_it_arrives() -> None:
    there = planned(docker_worker(cmake_options=PROBLEMATIC))
    found = text(there)
    assert labels(found)[f"{LABEL}options"].startswith(
        f"BUILD_SHARED_LIBS=ON CMAKE_BUILD_TYPE=Release CMAKE_CXX_FLAGS={PROBLEMATIC['CMAKE_CXX_FLAGS']} "
    )
    words = subprocess.run(
        ["sh", "-c", "cmake() { printf '%s\\n' \"$@\"; exit; }; " + compile_run(found).partition("if ! ")[2].partition(" >")[0]],
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"-DCMAKE_CXX_FLAGS={PROBLEMATIC['CMAKE_CXX_FLAGS']}" in words.stdout.splitlines()


def test_the_order_of_the_settings_is_no_matter() -> None:
    options = {"GGML_LTO": "ON", "GGML_AVX2": "OFF", "GGML_ZZZ": "1"}
    one, other = (planned(docker_worker(PASCAL, cmake_options=given)) for given in (options, dict(reversed(options.items()))))
    assert one.release == other.release
    assert text(one) == text(other)


BASE: dict[str, Any] = {"cuda_toolkit": "12.9", "build_image": "mine:1", "runtime_image": "mine:2"}


@pytest.mark.parametrize(
    "change",
    [
        {"cmake_options": {"GGML_LTO": "ON"}},
        {"build_image": "mine@sha256:" + "0" * 64},
        {"runtime_image": "mine:3"},
        {"cuda_toolkit": "12.8"},
        {"cuda_architectures": ["61-real", "75-real"]},
        {"runtime": "native"},
    ],
)
def test_whatever_goes_into_an_image_makes_another_release_of_that_host_alone(change: dict[str, Any]) -> None:
    other = gpu_worker(name="w2", address="192.0.2.12", runtime="docker")
    before, after = (plan_of([docker_worker(PASCAL, **given), other, head()]).hosts for given in (BASE, BASE | change))
    assert before["w1"].release != after["w1"].release
    assert before["w2"].release == after["w2"].release
    assert before["head"].release == after["head"].release


@pytest.mark.parametrize(
    "change",
    [
        {"container_memory": 4096},
        {"rpc_port": 50053},
        {"address": "192.0.2.13"},
        {"system": "ubuntu24.04"},
        {"drivers": loaded("580.95.05")},
        {"cuda_graphs": False},
    ],
)
def test_what_does_not_go_in_makes_no_other_release(change: dict[str, Any]) -> None:
    assert planned(docker_worker(PASCAL, **BASE)).release == planned(docker_worker(PASCAL, **BASE | change)).release


def test_a_change_of_a_template_makes_another_release(monkeypatch: pytest.MonkeyPatch) -> None:
    before = plan_of([docker_worker(PASCAL), gpu_worker(name="w2", address="192.0.2.12"), head()]).hosts
    render = module.render
    monkeypatch.setattr(module, "render", lambda *args, **values: render(*args, **values) + "# new\n")
    after = plan_of([docker_worker(PASCAL), gpu_worker(name="w2", address="192.0.2.12"), head()]).hosts
    assert {name for name in before if before[name].release != after[name].release} == {"w1"}


def test_the_recipe_is_of_no_commit_in_particular() -> None:
    profile = planned(docker_worker(PASCAL)).profile
    older = plan_of([docker_worker(PASCAL, commit=OLDER), head(commit=OLDER)]).hosts["w1"].profile
    assert older == profile
    assert with_recipe(profile) == profile
    assert dockerfile(profile, OLDER, "r") == dockerfile(replace(profile, recipe=""), OLDER, "r")


def test_hosts_of_different_distributions_share_an_image() -> None:
    debian = docker_worker(system="debian12")
    ubuntu = gpu_worker(name="w2", address="192.0.2.12", system="ubuntu24.04", runtime="docker")
    hosts = plan_of([debian, ubuntu, head()]).hosts
    assert hosts["w1"].release == hosts["w2"].release
    assert hosts["w1"].release.startswith("222222222222-docker-v3-cpu-worker-")
    assert (hosts["w1"].builder, hosts["w2"].builder) == ("w1", "w1")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("arc-a", ["libze-dev", "libze1", "libze-intel-gpu1", "intel-opencl-icd", "-DCMAKE_CXX_COMPILER=icpx"]),
        ("vulkan", ["glslc", "libvulkan-dev", "spirv-headers", "libvulkan1", "mesa-vulkan-drivers"]),
        ("rdna3", ["-DGPU_TARGETS=gfx1100", "-DCMAKE_HIP_COMPILER_LAUNCHER=ccache", "HIPCXX"]),
        ("pascal", ["-DCMAKE_CUDA_ARCHITECTURES=61-real", "-DCMAKE_CUDA_COMPILER_LAUNCHER=ccache"]),
        ("web-page", ["npm", "-DLLAMA_BUILD_UI=ON"]),
    ],
)
def test_what_only_one_kind_needs(name: str, words: list[str]) -> None:
    for word in words:
        assert word in text(plans()[name]).split()
        assert word not in text(plans()["cpu"]).split()


# The long RUN, for real, with stand-ins for git, CMake and Ninja.


def compile_run(dockerfile: str) -> str:
    """The shell's part of the RUN that compiles."""
    (line,) = [line for line in instructions(dockerfile) if line.startswith("RUN --mount")]
    return re.sub(r"^RUN (\s*--mount=\S+)+", "", line)


@dataclass
class Tried:
    """What a try of the RUN did."""

    status: int
    log: list[str]
    folder: Path

    @property
    def files(self) -> list[str]:
        release = self.folder / "release"
        return sorted(str(path.relative_to(release)) for path in release.rglob("*") if not path.is_dir())


Try = Callable[..., Tried]


@pytest.fixture
def attempt(tmp_path: Path) -> Try:
    programs = tmp_path / "stand-ins"
    programs.mkdir()
    for name, body in STAND_INS.items():
        (programs / name).write_text(f"#!/bin/sh\n{body}\n")
        (programs / name).chmod(0o755)
    (tmp_path / "meminfo").write_text("MemAvailable: 67108864 kB\n")
    (tmp_path / "compiler").write_text('set(CMAKE_CXX_COMPILER_ID "GNU")\nset(CMAKE_CXX_COMPILER_VERSION "14.2.0")\n')

    def run(name: str, targets: str = "ggml-rpc-server: phony\n", configured: str = "", **environment: str) -> Tried:
        there = plans()[name]
        (tmp_path / "targets").write_text(targets)
        (tmp_path / "configured").write_text(configured)
        script = compile_run(text(there))
        for folder in ("source", "build", "release"):
            script = script.replace(f"=/{folder};", f"={tmp_path}/{folder};")
        script = script.replace("/proc/meminfo", f"{tmp_path}/meminfo")
        ended = subprocess.run(
            ["sh", "-c", script],
            env={
                "PATH": f"{programs}:{os.environ['PATH']}",
                "COMMIT": there.commit,
                "TARGETS": str(tmp_path / "targets"),
                "CONFIGURED": str(tmp_path / "configured"),
                "COMPILER": str(tmp_path / "compiler"),
                **environment,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        return Tried(ended.returncode, ended.stdout.splitlines(), tmp_path)

    return run


def test_a_run_leaves_the_release_and_nothing_else(attempt: Try) -> None:
    tried = attempt("pascal", configured=UNUSED)
    assert tried.status == 0, tried.log
    assert tried.files == [
        "bin/ggml-rpc-server",
        "build/compiler",
        "build/unknown_options",
        "lib/libggml.so",
        "lib/libggml.so.0.1",
    ]
    build = tried.folder / "release/build"
    assert (build / "compiler").read_text() == "GNU 14.2.0\n"
    assert (build / "unknown_options").read_text().split() == ["GGML_OF_ANOTHER_TIME", "LLAMA_CURL"]
    # It would stay in the image's layer.
    assert not (tried.folder / "build").exists()


def test_a_heads_image_has_all_of_its_programs(attempt: Try) -> None:
    names = ("llama-server", "llama-bench", "llama-fit-params")
    tried = attempt("reference-rpc-main", targets="".join(f"{name}: phony\n" for name in names))
    assert tried.status == 0, tried.log
    assert {f"bin/{name}" for name in names} <= set(tried.files)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (
            {"targets": "llama-server: phony\n"},
            "gpuquilt: llama.cpp {commit12} has no program rpc-server: pin another commit.",
        ),
        (
            {"configured": "DEPRECATION: LLAMA_CUDA is deprecated, use GGML_CUDA instead\n"},
            "gpuquilt: llama.cpp says LLAMA_CUDA is deprecated, use GGML_CUDA instead: correct `cmake_options` in the inventory.",
        ),
        ({"COMMIT": OLDER}, "gpuquilt: {source} is at {older} and not at {commit}: run again."),
    ],
)
def test_why_it_cannot_be_built_is_a_sentence(attempt: Try, given: dict[str, str], sentence: str) -> None:
    tried = attempt("pascal", **given)
    commit = plans()["pascal"].commit
    wanted = sentence.format(commit=commit, commit12=commit[:12], older=OLDER, source=tried.folder / "source")
    assert (tried.status, tried.log[-1]) == (3, wanted)
    assert not (tried.folder / "release").exists()


def test_a_failing_compiler_is_not_taken_for_a_sentence(attempt: Try) -> None:
    assert attempt("pascal", NINJA_FAILS="yes").status == 1
    failed = attempt("pascal", configured="CMake Error: no compiler\n", CMAKE_STATUS="1")
    assert (failed.status, failed.log[-1]) == (1, "CMake Error: no compiler")


def test_a_builder_that_is_slower_already_builds_all_the_same(attempt: Try, tmp_path: Path) -> None:
    """As one whose Docker was started so: it may not become quicker."""
    denied = tmp_path / "stand-ins/renice"
    denied.write_text("#!/bin/sh\necho 'renice: failed to set priority: Permission denied' >&2\nexit 1\n")
    denied.chmod(0o755)
    assert attempt("pascal").status == 0


@pytest.mark.parametrize(
    ("name", "asked", "memory", "jobs"),
    [
        ("pascal", "7", "MemAvailable: 1048576 kB", "7"),
        ("pascal", "", "MemAvailable: 67108864 kB", "8"),
        ("pascal", "", "MemAvailable: 7340032 kB", "3"),
        ("reference-rpc-main", "", "MemAvailable: 7340032 kB", "7"),
        ("pascal", "", "MemAvailable: 524288 kB", "1"),
        ("pascal", "", "MemTotal: 67108864 kB", "1"),
    ],
)
def test_as_many_compilers_run_as_are_asked_for_or_there_is_memory_for(
    attempt: Try, tmp_path: Path, name: str, asked: str, memory: str, jobs: str
) -> None:
    """Ninja fails here, so that what it was asked for is still there."""
    (tmp_path / "stand-ins/nproc").write_text("#!/bin/sh\necho 8\n")
    (tmp_path / "stand-ins/nproc").chmod(0o755)
    (tmp_path / "meminfo").write_text(f"MemFree: 1 kB\n{memory}\n")
    targets = "".join(f"{target}: phony\n" for target in plans()[name].profile.targets)
    tried = attempt(name, targets=targets, NINJA_FAILS="yes", JOBS=asked)
    assert (tried.folder / "build/asked").read_text().split()[:2] == ["-j", jobs]


@pytest.mark.parametrize(
    ("version", "status"),
    [
        *(("none", 3), ("v18.19.1", 3), ("v20.9.0", 3), ("v21.7.3", 3), ("v22.9.0", 3), ("v22.11.0", 3)),
        *(("v20.19.2", 1), ("v22.12.0", 1), ("v24.1.0", 1)),
    ],
)
def test_a_web_page_without_its_node_js_is_refused_before_anything_is_compiled(
    attempt: Try, tmp_path: Path, version: str, status: int
) -> None:
    (tmp_path / "stand-ins/node").write_text(f"#!/bin/sh\n{'exit 127' if version == 'none' else f'echo {version}'}\n")
    (tmp_path / "stand-ins/node").chmod(0o755)
    tried = attempt("web-page", configured="CMake Error: it got this far\n", CMAKE_STATUS="1")
    assert tried.status == status
    sentence = f"gpuquilt: llama-server's web page wants Node.js 20.19 or 22.12, and this is {version}: set `web_ui` to False."
    assert tried.log[-1] == (sentence if status == 3 else "CMake Error: it got this far")
