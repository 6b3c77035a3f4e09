"""What a release must show before it may get its name; every fault is planted once."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roles.llama_cpp import gate
from tests.unit.llama_cpp.examples import NEWER, OLDER, examination

VERSIONS = {
    OLDER: "version: 1 (e3a74b2)",
    NEWER: "version: 0.5.0-dev (build 1, commit 0c1e570)",
}


def judge(lines: list[str], target: str = "rpc-server", commit: str = NEWER) -> list[str]:
    return gate.problems(gate.parse(lines), [target], "cpu", commit)


@pytest.mark.parametrize(("commit", "program"), [(OLDER, "rpc-server"), (NEWER, "ggml-rpc-server")])
def test_a_worker_of_either_commit_passes_under_its_own_name(commit: str, program: str) -> None:
    lines = examination("rpc-server", program, commit)
    assert judge(lines, commit=commit) == []
    assert gate.parse(lines).programs(["rpc-server"]) == {"rpc-server": f"bin/{program}"}
    assert "--cache" in gate.parse(lines).flags(["rpc-server"])["rpc-server"]


@pytest.mark.parametrize("commit", [OLDER, NEWER])
def test_a_head_of_either_commit_passes(commit: str) -> None:
    lines = examination("llama-server", "llama-server", commit, VERSIONS[commit])
    assert judge(lines, "llama-server", commit) == []


def test_a_program_that_was_not_built() -> None:
    assert judge(examination("rpc-server", "ggml-rpc-server", NEWER), "llama-server") == ["llama-server was not built"]


def test_a_library_that_is_not_found() -> None:
    lines = [
        "	libggml-rpc.so.0 => not found" if "libggml-rpc.so.0 =>" in line else line
        for line in examination("rpc-server", "ggml-rpc-server", NEWER)
    ]
    assert judge(lines) == ["bin/ggml-rpc-server does not find its library libggml-rpc.so.0"]


def with_cuda(driver: str) -> list[str]:
    """What a worker for CUDA shows.

    :param driver: what `ldd` says of its library
    """
    lines = examination("rpc-server", "ggml-rpc-server", NEWER)
    last = next(index for index, line in enumerate(lines) if "ld-linux" in line)
    ours = "	libggml-cuda.so.0 => /x/bin/../lib/../lib/libggml-cuda.so.0 (0x1)"
    cudart = "	libcudart.so.12 => /lib/x86_64-linux-gnu/libcudart.so.12 (0x1)"
    return [*lines[:last], ours, cudart, f"	libcuda.so.1 => {driver}", *lines[last:]]


def test_nvidias_driver_is_no_part_of_a_release() -> None:
    assert gate.problems(gate.parse(with_cuda("/lib/x86_64-linux-gnu/libcuda.so.1 (0x1)")), ["rpc-server"], "cuda", NEWER) == []


def test_a_missing_driver_is_told_as_such_and_nothing_that_follows_from_it() -> None:
    lines = [line for line in with_cuda("not found") if not line.strip().startswith("-")]
    lines = [line.replace("ggml-rpc-server 0", "ggml-rpc-server 127") for line in lines]
    assert gate.problems(gate.parse(lines), ["rpc-server"], "cuda", NEWER) == [
        "bin/ggml-rpc-server does not find its library libcuda.so.1, which belongs to NVIDIA's driver (deploys/prepare.py"
        " installs that, and a reboot may be owed; a container gets it with the device nvidia.com/gpu=all)"
    ]


def test_a_missing_part_of_the_toolkit_is_told_as_any_library() -> None:
    lines = [line.replace("/lib/x86_64-linux-gnu/libcudart.so.12 (0x1)", "not found") for line in with_cuda("/x (0x1)")]
    assert gate.problems(gate.parse(lines), ["rpc-server"], "cuda", NEWER) == [
        "bin/ggml-rpc-server does not find its library libcudart.so.12"
    ]


@pytest.mark.parametrize("backend", ["hip", "sycl", "vulkan"])
def test_each_backend_is_a_library_of_its_own(backend: str) -> None:
    """Named as in ggml_add_backend_library of llama.cpp's ggml/src/ggml-*/CMakeLists.txt."""
    lines = with_cuda("/x (0x1)")
    without = gate.problems(gate.parse(lines), ["rpc-server"], backend, NEWER)
    assert without == [f"bin/ggml-rpc-server was built without the {backend} backend"]
    own = [line.replace("libggml-cuda", f"libggml-{backend}") for line in lines]
    assert gate.problems(gate.parse(own), ["rpc-server"], backend, NEWER) == []


def test_a_library_from_outside_the_release() -> None:
    lines = [
        "	libggml.so.0 => /usr/lib/x86_64-linux-gnu/libggml.so.0 (0x1)" if "libggml.so.0 =>" in line else line
        for line in examination("rpc-server", "ggml-rpc-server", NEWER)
    ]
    (problem,) = judge(lines)
    assert problem == "bin/ggml-rpc-server takes libggml.so.0 from outside the release (/usr/lib/x86_64-linux-gnu/libggml.so.0)"


@pytest.mark.parametrize("backend", ["rpc", "cpu"])
def test_a_backend_that_is_not_in_it(backend: str) -> None:
    lines = [line for line in examination("rpc-server", "ggml-rpc-server", NEWER) if f"libggml-{backend}.so.0 =>" not in line]
    assert judge(lines) == [f"bin/ggml-rpc-server was built without the {backend} backend"]


def test_a_help_text_without_rpc() -> None:
    lines = [
        line for line in examination("llama-server", "llama-server", NEWER, VERSIONS[NEWER]) if not line.startswith("--rpc ")
    ]
    assert judge(lines, "llama-server") == ["bin/llama-server does not know --rpc"]


@pytest.mark.parametrize(
    ("status", "why"),
    [("132", "this CPU lacks an instruction"), ("127", "a library is missing"), ("134", "it aborted"), ("0", "exit status 0")],
)
def test_a_program_that_does_not_run(status: str, why: str) -> None:
    lines = [
        f"::gpuquilt status bin/ggml-rpc-server {status}" if line.startswith("::gpuquilt status") else line
        for line in examination("rpc-server", "ggml-rpc-server", NEWER)
        if not line.strip().startswith("-")
    ]
    assert judge(lines) == [f"bin/ggml-rpc-server --help lists no flag ({why})"]


@pytest.mark.parametrize("version", ["version: 1 (unknown)", VERSIONS[OLDER], "", "version: 1 (0c1e5)"])
def test_another_commit_or_none(version: str) -> None:
    lines = examination("llama-server", "llama-server", NEWER, version)
    (problem,) = judge(lines, "llama-server")
    assert problem == f"bin/llama-server --version says {version or 'nothing'!r} and not the commit 0c1e57098bba"


def test_files_are_those_of_the_manifest() -> None:
    seen = gate.parse(["::gpuquilt files", f"{'a' * 64}  bin/a", f"{'b' * 64}  lib/b", f"{'c' * 64}  lib/c"])
    assert gate.changed_files(seen, seen.files) == []
    assert gate.changed_files(seen, {"bin/a": "a" * 64, "lib/b": "0" * 64, "lib/d": "d" * 64}) == [
        "lib/d is missing",
        "lib/b has another hash than in the manifest",
        "lib/c is not in the manifest",
    ]


@given(st.lists(st.text() | st.sampled_from(["::gpuquilt ", "::gpuquilt status", "::gpuquilt help bin/x", "::gpuquilt files"])))
def test_no_output_makes_the_reading_raise(lines: list[str]) -> None:
    assert gate.problems(gate.parse(lines), ["llama-server"], "cpu", NEWER)


def test_the_command_shows_real_programs(tmp_path: Path) -> None:
    for folder in ("bin", "lib"):
        (tmp_path / folder).mkdir()
    (tmp_path / "lib" / "libx.so.1").write_text("x")
    (tmp_path / "lib" / "libx.so").symlink_to("libx.so.1")
    server = tmp_path / "bin" / "llama-server"
    server.write_text(
        '#!/bin/sh\n[ "$1" = --help ] && echo "  -m, --model FILE   the model" || echo "version: 1 (0c1e570)" >&2\n'
    )
    server.chmod(0o755)
    said = subprocess.run(["sh", "-c", gate.command(str(tmp_path))], capture_output=True, text=True, check=True).stdout
    seen = gate.parse(said.splitlines())
    assert sorted(seen.files) == ["bin/llama-server", "lib/libx.so.1"]
    assert seen.flags(["llama-server"]) == {"llama-server": ("--model", "-m")}
    assert seen.statuses == {"bin/llama-server": "0"}
    assert seen.versions == {"bin/llama-server": ["version: 1 (0c1e570)"]}
