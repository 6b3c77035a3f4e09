"""Split GGUF files. Pure.

llama.cpp opens the first part and makes the names of the others from it, as `llama_split_path` does (src/llama.cpp):
prefix, number and count in five digits each.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

PART = re.compile(r"(?P<prefix>.*)-(?P<number>[0-9]{5})-of-(?P<count>(?!00000)[0-9]{5})\.gguf")


def problem_of_names(names: Sequence[str]) -> str:
    """What is wrong with these file names as one model, and what would be right; empty when nothing is.

    :param names: in the order of the inventory
    """
    parts = [PART.fullmatch(name) for name in names]
    if parts == [None]:
        return ""
    for name, part in zip(names, parts, strict=True):
        if part is None:
            return f"lists {name}, which is no part of a split model: the parts are called NAME-00001-of-0000N.gguf."
    first = parts[0]
    assert first is not None
    count = int(first["count"])
    right = [f"{first['prefix']}-{number:05}-of-{count:05}.gguf" for number in range(1, count + 1)]
    if list(names) != right:
        found = f"{names[0]} alone" if len(names) == 1 else f"{len(names)} parts from {names[0]} to {names[-1]}"
        return (
            f"lists {found}: list all {count} parts, each once and in order, from {first['prefix']}-00001-of-{count:05}.gguf"
            f" to {first['prefix']}-{count:05}-of-{count:05}.gguf."
        )
    return ""
