"""The build's script, run for real with stand-ins for git, CMake and Ninja; and what is said about it."""

import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roles.cluster.plan import HostPlan
from roles.cluster.settings import Runtime
from roles.gpus.catalog import Backend
from roles.llama_cpp import recipe
from tests.unit.cluster.examples import NEWER, good_plan

STAND_INS = {
    "git": "echo $COMMIT",
    "cmake": """
while [ "$1" != -B ]; do shift; done
mkdir -p "$2/CMakeFiles/3.31.6"
cp "$COMPILER" "$2/CMakeFiles/3.31.6/CMakeCXXCompiler.cmake"
cat "$CONFIGURED"
exit ${CMAKE_STATUS:-0}
""",
    "ninja": """
build=$2
shift 2
if [ "$*" = "-t targets all" ]; then cat "$TARGETS"; exit; fi
echo "$*" >"$build/asked"
[ -z "${NINJA_FAILS:-}" ] || exit 3
mkdir -p "$build/bin"
shift 2
for name; do echo program >"$build/bin/$name"; done
echo library >"$build/bin/libggml.so.0.1"
ln -sf libggml.so.0.1 "$build/bin/libggml.so"
""",
}
UNUSED = """
CMake Warning:
  Manually-specified variables were not used by the project:

    GGML_OF_ANOTHER_TIME
    LLAMA_CURL


-- Build files have been written to: /x
"""


@dataclass
class Tried:
    """What a run of the script did."""

    status: int
    log: list[str]
    folder: Path
    plan: HostPlan

    def path(self, there: str) -> Path:
        """Where a path of the host is in this try."""
        return self.folder / there.lstrip("/")


Try = Callable[..., Tried]


@pytest.fixture
def attempt(tmp_path: Path) -> Try:
    """Run the script of a worker's build; arguments change what the stand-ins say."""
    programs = tmp_path / "stand-ins"
    programs.mkdir()
    for name, body in STAND_INS.items():
        (programs / name).write_text(f"#!/bin/sh\n{body}\n")
        (programs / name).chmod(0o755)
    compiler = tmp_path / "compiler"
    compiler.write_text(
        'set(CMAKE_CXX_COMPILER "/usr/bin/c++")\nset(CMAKE_CXX_COMPILER_ID "GNU")\nset(CMAKE_CXX_COMPILER_VERSION "14.2.0")\n'
    )

    def run(targets: str = "ggml-rpc-server: phony\n", configured: str = "", commit: str = NEWER, **environment: str) -> Tried:
        plan = good_plan().hosts["w1"]
        (tmp_path / "targets").write_text(targets)
        (tmp_path / "configured").write_text(configured)
        script = recipe.build_script(plan, 0)
        for root in (recipe.ROOT, "/opt/llama.cpp"):
            script = script.replace(root, f"{tmp_path}{root}")
        ended = subprocess.run(
            ["sh", "-c", script],
            env={
                "PATH": f"{programs}:{os.environ['PATH']}",
                "COMMIT": commit,
                "TARGETS": str(tmp_path / "targets"),
                "CONFIGURED": str(tmp_path / "configured"),
                "COMPILER": str(compiler),
                **environment,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        return Tried(ended.returncode, ended.stdout.splitlines(), tmp_path, plan)

    return run


def test_what_is_built_lies_in_bin_and_lib_and_in_the_archive(attempt: Try) -> None:
    tried = attempt(configured=UNUSED)
    assert tried.status == 0, tried.log
    release = tried.plan.release
    there = tried.path(recipe.partial_folder(release))
    assert sorted(str(path.relative_to(there)) for path in there.rglob("*")) == [
        "bin",
        "bin/ggml-rpc-server",
        "lib",
        "lib/libggml.so",
        "lib/libggml.so.0.1",
    ]
    assert (there / "lib" / "libggml.so").is_symlink()
    listed = subprocess.run(
        ["tar", "-I", "zstd", "-tf", str(tried.path(recipe.archive(release)))], capture_output=True, text=True, check=True
    )
    assert listed.stdout.split() == ["bin/", "bin/ggml-rpc-server", "lib/", "lib/libggml.so", "lib/libggml.so.0.1"]
    folder = tried.path(recipe.build_folder(release))
    assert (folder / "compiler").read_text() == "GNU 14.2.0\n"
    assert (folder / "unknown_options").read_text().split() == ["GGML_OF_ANOTHER_TIME", "LLAMA_CURL"]


def test_the_same_build_makes_the_same_archive(attempt: Try) -> None:
    first = attempt()
    archive = first.path(recipe.archive(first.plan.release))
    content = archive.read_bytes()
    attempt()
    assert archive.read_bytes() == content
    listed = subprocess.run(["tar", "--utc", "-I", "zstd", "-tvf", archive], capture_output=True, text=True, check=True)
    assert all(" 0/0 " in line and " 1970-01-01 00:00 " in line for line in listed.stdout.splitlines()), listed.stdout


def test_what_a_killed_run_left_is_not_packed(attempt: Try) -> None:
    tried = attempt()
    left = tried.path(recipe.partial_folder(tried.plan.release)) / "lib" / "left"
    left.write_text("half")
    assert attempt().status == 0
    assert not left.exists()


def test_the_rpc_server_is_found_by_either_name(attempt: Try) -> None:
    tried = attempt(targets="llama-server: phony\nrpc-server: phony\nmy-rpc-server: phony\nbin/rpc-server: CXX_EXECUTABLE\n")
    assert tried.status == 0, tried.log
    asked = (tried.path(recipe.build_folder(tried.plan.release)) / "asked").read_text().split()
    assert asked[-1] == "rpc-server"
    assert asked[:2] == ["-j", str(len(os.sched_getaffinity(0)))]


def says(tried: Tried, sentence: str) -> None:
    """It ended with the status that promises a sentence, and left no release."""
    assert (tried.status, tried.log[-1]) == (3, sentence)
    assert not tried.path(recipe.partial_folder(tried.plan.release)).exists()


def test_a_commit_without_the_program_is_said(attempt: Try) -> None:
    says(attempt(targets="llama-server: phony\n"), "w1: llama.cpp 222222222222 has no program rpc-server: pin another commit.")


def test_another_commit_in_the_source_is_said(attempt: Try) -> None:
    tried = attempt(commit="1" * 40)
    says(tried, f"w1: {tried.path(recipe.SOURCE)} is at {'1' * 40} and not at {NEWER}: run again.")


@pytest.mark.parametrize(
    "warning",
    [
        "CMake Warning at CMakeLists.txt:170 (message):\n  LLAMA_CUDA is deprecated, use GGML_CUDA instead\nCall Stack",
        "DEPRECATION: LLAMA_CUDA is deprecated, use GGML_CUDA instead",
    ],
)
def test_an_option_by_its_old_name_is_said(attempt: Try, warning: str) -> None:
    says(
        attempt(configured=warning + "\n"),
        "w1: llama.cpp says LLAMA_CUDA is deprecated, use GGML_CUDA instead: correct `cmake_options` in the inventory.",
    )


def test_a_failing_cmake_shows_its_log(attempt: Try) -> None:
    tried = attempt(configured="CMake Error: no compiler\n", CMAKE_STATUS="1")
    assert tried.status == 1
    assert tried.log[-1] == "CMake Error: no compiler"


def test_a_failing_compiler_is_not_taken_for_a_sentence(attempt: Try) -> None:
    assert attempt(NINJA_FAILS="yes").status == 1


def test_every_option_of_the_plan_reaches_cmake_quoted() -> None:
    plan = good_plan(cmake_options={"GGML_LTO": "ON", "CMAKE_CXX_FLAGS": "-O2 -g'"}).hosts["head"]
    script = recipe.build_script(plan, 3)
    assert "    -DGGML_LTO=ON \\\n" in script
    assert """    -DCMAKE_CXX_FLAGS='-O2 -g'"'"'' \\\n""" in script
    assert "for target in llama-server llama-bench llama-fit-params; do" in script
    assert "\njobs=3\n" in script
    for name in plan.profile.options:
        assert f"    -D{name}=" in script


def test_the_web_page_needs_npm_and_must_be_there() -> None:
    without, with_it = good_plan().hosts["head"], good_plan(web_ui=True).hosts["head"]
    assert "npm" not in recipe.tools(without)
    assert "index.html" not in recipe.build_script(without, 0)
    assert "npm" in recipe.tools(with_it)
    assert "index.html" in recipe.build_script(with_it, 0)


def test_progress_is_a_sentence() -> None:
    read = recipe.progress(NEWER)
    assert read("") == "llama.cpp 222222222222: waiting"
    assert read("configuring") == "llama.cpp 222222222222: configuring"
    assert read("[ 42%] Building CXX object src/x.cpp.o") == "llama.cpp 222222222222: 42 % built"
    assert read("   42 |     warning: something") == "llama.cpp 222222222222: 42 % built"
    assert read("packing") == "llama.cpp 222222222222: packing"


@given(st.lists(st.text()))
def test_no_line_of_a_log_makes_progress_raise(lines: list[str]) -> None:
    read = recipe.progress(NEWER)
    assert all(read(line).startswith("llama.cpp 222222222222: ") for line in lines)


def test_only_what_no_kept_release_needs_is_superfluous() -> None:
    stock = [
        "/opt/llama.cpp/releases/new",
        "/opt/llama.cpp/releases/old",
        "/opt/llama.cpp/releases/.new.partial",
        "/opt/llama.cpp/archives/new.tar.zst",
        "/opt/llama.cpp/archives/old.tar.zst",
        "/var/cache/gpuquilt/build/new",
        "/var/lib/gpuquilt/work/gpuquilt-build-new",
        "/var/lib/gpuquilt/work/gpuquilt-build-old",
    ]
    assert recipe.superfluous(stock, {"new"}) == [
        "/opt/llama.cpp/archives/old.tar.zst",
        "/opt/llama.cpp/releases/.new.partial",
        "/opt/llama.cpp/releases/old",
        "/var/cache/gpuquilt/build/new",
        "/var/lib/gpuquilt/work/gpuquilt-build-old",
    ]


def of(backend: Backend, system: str = "debian13", runtime: Runtime = "native") -> HostPlan:
    plan = good_plan().hosts["w1"]
    return replace(plan, runtime=runtime, profile=replace(plan.profile, backend=backend, system=system))


@pytest.mark.parametrize(
    "plan",
    [of("cpu"), of("cuda"), of("vulkan"), of("vulkan", "ubuntu24.04"), of("hip", "docker", "docker"), of("cpu", "debian99")],
)
def test_what_can_be_built(plan: HostPlan) -> None:
    assert recipe.problems_of_backend(plan) == []


@pytest.mark.parametrize(
    ("plan", "where", "instead"),
    [
        (of("sycl", "ubuntu24.04"), "Ubuntu 24.04", "vulkan"),
        (of("hip", "ubuntu22.04"), "Ubuntu 22.04", "cpu"),
        (of("vulkan", "debian12"), "Debian 12", "cpu"),
        (of("vulkan", "debian99"), "debian99", "cpu"),
    ],
)
def test_what_can_be_built_in_containers_alone_is_said_with_the_way_out(plan: HostPlan, where: str, instead: str) -> None:
    assert recipe.problems_of_backend(plan) == [
        f"its release is planned for {plan.profile.backend}, which on {where} can be built in containers alone: set runtime ="
        f' "docker" for this host, or backend = "{instead}".'
    ]


def test_vulkan_needs_tools_of_its_own() -> None:
    assert set(recipe.tools(of("vulkan"))) - set(recipe.tools(of("cpu"))) == {"libvulkan-dev", "glslc", "spirv-headers"}
    assert recipe.tools(of("cuda")) == recipe.tools(of("cpu"))
