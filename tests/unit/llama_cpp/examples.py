"""What a release shows, taken from real builds of the two commits that are tested."""

from __future__ import annotations

from pathlib import Path

from roles.llama_cpp.manifest import Manifest

OLDER = "e3a74b299085cd00013804f7fca2e03441b2da20"
NEWER = "0c1e57098bba43ac29e6e3b677cdceebdd22334f"
RELEASE = "0c1e57098bba-debian13-v3-cpu-worker-0c0d0c"
HELP = Path(__file__).parent / "help"


def help_text(commit: str, target: str) -> list[str]:
    """What ``--help`` printed."""
    return (HELP / f"{commit[:12]}-{target}.txt").read_text().splitlines()


def manifest() -> Manifest:
    """A worker's."""
    return Manifest(
        release=RELEASE,
        commit=NEWER,
        system="debian13",
        cpu_level="v3",
        backend="cpu",
        targets=("rpc-server",),
        options={"GGML_RPC": "ON"},
        compiler="GNU 14.2.0",
        builder="w1",
        built_at="2026-11-30T19:31:12Z",
        programs={"rpc-server": "bin/ggml-rpc-server"},
        flags={"rpc-server": ("--cache", "--host", "--port", "-H", "-c", "-p")},
        files={"bin/ggml-rpc-server": "a" * 64, "lib/libggml-rpc.so.0.25.3": "b" * 64},
        archive_sha256="c" * 64,
    )


LDD = """\
	linux-vdso.so.1 (0x00007f3d4e1f7000)
	libggml.so.0 => {folder}/bin/../lib/libggml.so.0 (0x00007f3d4e1bc000)
	libggml-base.so.0 => {folder}/bin/../lib/libggml-base.so.0 (0x00007f3d4e0f0000)
	libstdc++.so.6 => /lib/x86_64-linux-gnu/libstdc++.so.6 (0x00007f3d4de87000)
	libggml-cpu.so.0 => {folder}/bin/../lib/../lib/libggml-cpu.so.0 (0x00007f3d4da9d000)
	libggml-rpc.so.0 => {folder}/bin/../lib/../lib/libggml-rpc.so.0 (0x00007f3d4da70000)
	/lib64/ld-linux-x86-64.so.2 (0x00007f3d4e1f9000)"""


def examination(target: str, program: str, commit: str, version: str = "") -> list[str]:
    """The lines that the gate reads of a release with one program."""
    path = f"bin/{program}"
    lines = [f"::gpuquilt ldd {path}", *LDD.format(folder="/opt/llama.cpp/releases/.x.partial").splitlines()]
    lines += [f"::gpuquilt help {path}", *help_text(commit, target), f"::gpuquilt status {path} 0"]
    if version:
        lines += [f"::gpuquilt version {path}", version, "built with GNU 14.2.0 for Linux x86_64"]
    return [*lines, "::gpuquilt files", f"{'a' * 64}  {path}", f"{'b' * 64}  lib/libggml-rpc.so.0.25.3"]
