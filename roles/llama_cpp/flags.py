"""What a command line asks of a build: the flags that it must know. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from roles.llama_cpp.manifest import Manifest, missing_flags

_FLAG = re.compile(r"--?[A-Za-z].*")


@dataclass(frozen=True)
class Option:
    """A part of a command line.

    :param words: a flag and its value, or several of them
    :param setting: the inventory key that brings it; empty when it is always there
    """

    words: tuple[str, ...]
    setting: str = ""

    @property
    def flags(self) -> list[str]:
        return [word for word in self.words if _FLAG.fullmatch(word)]


def arguments(options: Sequence[Option]) -> list[str]:
    """The words of all options, in order."""
    return [word for option in options for word in option.words]


def unknown_flags(manifest: Manifest, target: str, options: Sequence[Option]) -> list[str]:
    """A sentence for each flag that this build of a target does not know."""
    sentences = []
    for option in options:
        for flag in missing_flags(manifest, target, option.flags):
            bringer = f"take it out of {option.setting}" if option.setting else "use the version of gpuquilt for this commit"
            sentences.append(
                f"{target} of commit {manifest.commit[:12]} knows no flag {flag}: {bringer}, or pin another `commit`."
            )
    return sentences
