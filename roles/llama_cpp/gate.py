"""What a release must show before it may get its name: every program loads, knows its flags and is of the pinned commit. Pure.

The same gate stands on the host that built a release and on every host that got it: a CPU or a system that differs
from the builder's is found there.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from roles.llama_cpp.manifest import parse_flags

REQUIRED_FLAGS: Mapping[str, tuple[str, ...]] = {
    "rpc-server": ("--host", "--port", "--cache"),
    "llama-server": ("--rpc", "--host", "--port", "--metrics"),
    "llama-bench": ("--rpc",),
    "llama-fit-params": ("--rpc",),
}
"""Target → what its ``--help`` must list."""

VERSIONED = "llama-server"
"""The program that names its commit; the RPC server has no ``--version``."""

SECTION = "::gpuquilt "
"""What a line begins with that says what follows."""
_SHORTEST_HASH = 7
_OF_DRIVERS = {
    "libcuda.so.1": ", which belongs to NVIDIA's driver (deploys/prepare.py installs that, and a reboot may be owed; a container"
    " gets it with the device nvidia.com/gpu=all)"
}
"""Library → where it comes from, since neither the release nor the toolkit has it."""
_FATAL_STATUS = {
    "124": "it did not end within 30 s",
    "127": "a library is missing",
    "132": "this CPU lacks an instruction",
    "134": "it aborted",
}


@dataclass
class Examination:
    """What the files of a release showed; filled by `parse`.

    :param libraries: program → what `ldd` says
    :param helps: program → what ``--help`` says
    :param statuses: program → exit status of ``--help``
    :param versions: program → what ``--version`` says
    :param files: path in the release → SHA-256
    :param image: the ID of the container image that they lie in; empty where they lie on the host itself
    :param revision: the commit that the image's label names
    """

    libraries: dict[str, list[str]] = field(default_factory=dict)
    helps: dict[str, list[str]] = field(default_factory=dict)
    statuses: dict[str, str] = field(default_factory=dict)
    versions: dict[str, list[str]] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    image: str = ""
    revision: str = ""

    def programs(self, targets: Sequence[str]) -> dict[str, str]:
        """Target → path, by what is there: upstream renamed ``rpc-server`` to ``ggml-rpc-server``."""
        found = {}
        for target in targets:
            for path in (f"bin/{target}", f"bin/ggml-{target}"):
                if path in self.files:
                    found[target] = path
        return found

    def flags(self, targets: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """Target → the flags that its program knows."""
        return {target: parse_flags(self.helps.get(path, ())) for target, path in self.programs(targets).items()}


def command(folder: str) -> str:
    """The shell command whose output `parse` reads; it changes nothing and connects to nothing.

    :param folder: the release's
    """
    return f"""cd {shlex.quote(folder)} || exit 1
for program in bin/*; do
    echo "{SECTION}ldd $program"; ldd "$program" 2>&1
    echo "{SECTION}help $program"; timeout 30 "$program" --help 2>&1 </dev/null
    echo "{SECTION}status $program $?"
done
if [ -e bin/{VERSIONED} ]; then
    echo "{SECTION}version bin/{VERSIONED}"; timeout 30 bin/{VERSIONED} --version 2>&1 </dev/null
fi
echo "{SECTION}files"
find bin lib -type f -exec sha256sum {{}} +"""


def parse(lines: Sequence[str]) -> Examination:
    """Read the output of `command`; lines that it does not know are passed over."""
    examination = Examination()
    kind, program = "", ""
    for line in lines:
        if line.startswith(SECTION):
            kind, program, status, *_ = [*line.removeprefix(SECTION).split(), "", "", ""]
            if kind == "status":
                examination.statuses[program] = status
            elif kind == "image":
                examination.image, examination.revision = program, status
        elif kind == "ldd":
            examination.libraries.setdefault(program, []).append(line)
        elif kind == "help":
            examination.helps.setdefault(program, []).append(line)
        elif kind == "version":
            examination.versions.setdefault(program, []).append(line)
        elif kind == "files" and len(line.split(None, 1)) == 2:
            digest, path = line.split(None, 1)
            examination.files[path] = digest
    return examination


def problems(examination: Examination, targets: Sequence[str], backend: str, commit: str) -> list[str]:
    """Why this release may not be used, one clause each that begins with the program; empty when it may.

    :param backend: what must compute in it, e.g. cpu: its library must be found, the RPC library too
    """
    programs = examination.programs(targets)
    found = []
    if examination.image and examination.revision != commit:
        found.append(f"its image is labelled {examination.revision or 'with nothing'} and not with the commit {commit[:12]}")
    found += [f"{target} was not built" for target in targets if target not in programs]
    for target, path in programs.items():
        libraries = examination.libraries.get(path, [])
        found += _library_problems(path, libraries, ("rpc", backend))
        if _missing(libraries):
            # It does not start, so what it would say of itself is no reason of its own.
            continue
        found += _help_problems(target, path, examination)
        if target == VERSIONED:
            found += _version_problems(path, examination.versions.get(path, []), commit)
    return found


def changed_files(examination: Examination, files: Mapping[str, str]) -> list[str]:
    """Which files are not those of the manifest, one clause each.

    :param files: path → SHA-256, the manifest's
    """
    found = [f"{path} is missing" for path in sorted(set(files) - set(examination.files))]
    for path, digest in sorted(examination.files.items()):
        if path not in files:
            found.append(f"{path} is not in the manifest")
        elif files[path] != digest:
            found.append(f"{path} has another hash than in the manifest")
    return found


def _missing(lines: Sequence[str]) -> list[str]:
    return [line.split()[0] for line in lines if line.endswith("=> not found")]


def _library_problems(path: str, lines: Sequence[str], backends: Sequence[str]) -> list[str]:
    found = [f"{path} does not find its library {name}{_OF_DRIVERS.get(name, '')}" for name in _missing(lines)]
    for line in lines:
        # A library of the same name that a package or a hand-made build left on the host would be another commit's.
        name, arrow, place = line.strip().partition(" => ")
        if arrow and re.match(r"lib(ggml|llama|mtmd)", name) and "/bin/../lib/" not in place and "not found" not in place:
            found.append(f"{path} takes {name} from outside the release ({place.split()[0]})")
    for backend in backends:
        if not any(line.strip().startswith(f"libggml-{backend}.so") for line in lines):
            found.append(f"{path} was built without the {backend} backend")
    return found


def _help_problems(target: str, path: str, examination: Examination) -> list[str]:
    known = parse_flags(examination.helps.get(path, ()))
    status = examination.statuses.get(path, "")
    if not known:
        # The status alone tells nothing: the RPC server ends with 0 whatever it is asked.
        why = _FATAL_STATUS.get(status, f"exit status {status or 'unknown'}")
        return [f"{path} --help lists no flag ({why})"]
    return [f"{path} does not know {flag}" for flag in REQUIRED_FLAGS.get(target, ()) if flag not in known]


def _version_problems(path: str, lines: Sequence[str], commit: str) -> list[str]:
    line = next((line for line in lines if line.startswith("version:")), "")
    hashes = [word for word in re.findall(r"[0-9a-f]+", line) if len(word) >= _SHORTEST_HASH]
    if any(commit.startswith(word) for word in hashes):
        return []
    return [f"{path} --version says {line or 'nothing'!r} and not the commit {commit[:12]}"]
