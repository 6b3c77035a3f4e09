"""What a release is made of: the manifest that lies in its folder, and the reading of help texts. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

FILE = "manifest.json"
"""Its name in the folder of a release. It is written last: a folder without it is no release."""

_INDENT = 8
"""Help texts begin a flag in one of the first columns; what begins further to the right belongs to a description."""
_DESCRIPTION = re.compile(r"\s{2,}(?![\s-])")
_FLAG = re.compile(r"(?:^|[\s,])(--?[A-Za-z][A-Za-z0-9_.-]*)")


@dataclass(frozen=True)
class Manifest:
    """
    :param release: name of the folder: commit and profile
    :param commit: 40 hexadecimal digits
    :param system: distribution and release that it was built on, e.g. debian13
    :param cpu_level: x86-64 level that it needs: v2 or v3
    :param targets: what was built, by llama.cpp's logical names
    :param options: CMake options, name → value
    :param compiler: name and version, e.g. ``GNU 14.2.0``
    :param builder: name of the host that built it
    :param built_at: UTC, ISO 8601
    :param programs: target → path in the release, e.g. ``rpc-server`` → ``bin/ggml-rpc-server``
    :param flags: target → the flags that its ``--help`` lists, sorted
    :param files: path in the release → SHA-256
    :param archive_sha256: SHA-256 of the archive that other hosts get; empty where that is made only when it is asked for
    :param image: Docker's name for the content of the container image on this host, ``sha256:…``; empty where the programs lie
        in the release's own folder
    """

    release: str
    commit: str
    system: str
    cpu_level: str
    backend: str
    targets: tuple[str, ...]
    options: Mapping[str, str]
    compiler: str
    builder: str
    built_at: str
    programs: Mapping[str, str]
    flags: Mapping[str, tuple[str, ...]]
    files: Mapping[str, str]
    archive_sha256: str
    image: str = ""

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1, sort_keys=True) + "\n"

    @staticmethod
    def from_json(text: str) -> Manifest | None:
        """None where there is no manifest, or one that cannot be read."""
        try:
            data = json.loads(text)
            words = ("release", "commit", "system", "cpu_level", "backend", "compiler", "builder", "built_at")
            return Manifest(
                **{word: str(data[word]) for word in words},
                targets=tuple(data["targets"]),
                options=dict(data["options"]),
                programs=dict(data["programs"]),
                flags={target: tuple(flags) for target, flags in data["flags"].items()},
                files=dict(data["files"]),
                archive_sha256=str(data["archive_sha256"]),
                image=str(data.get("image", "")),
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            return None


def parse_flags(help_text: Iterable[str]) -> tuple[str, ...]:
    """The flags that the lines of a ``--help`` list, all spellings, sorted; no text makes it raise."""
    flags: set[str] = set()
    for line in help_text:
        text = line.strip()
        if text.startswith("-") and len(line) - len(line.lstrip()) <= _INDENT:
            flags.update(flag.rstrip(".-") for flag in _FLAG.findall(_DESCRIPTION.split(text, maxsplit=1)[0]))
    return tuple(sorted(flags))


def missing_flags(manifest: Manifest, target: str, flags: Sequence[str]) -> list[str]:
    """Those of the flags that this build of a target does not know, in order.

    llama.cpp's RPC server ends with status 0 at an unknown flag, so that nothing but its help text tells.
    """
    known = frozenset(manifest.flags.get(target, ()))
    return [flag for flag in flags if flag not in known]
