"""How a release is built: where, by which script, and what its log says; where they differ, of one that is a folder. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath

from roles.base.templates import render
from roles.cluster.plan import HostPlan
from roles.cluster.state import RELEASES
from roles.gpus.catalog import load

TOOLS = ("ca-certificates", "ccache", "cmake", "g++", "git", "ninja-build", "openssh-client", "pkg-config", "zstd")
WEB_TOOLS = ("npm",)

ROOT = "/var/cache/gpuquilt"
SOURCE = f"{ROOT}/source"
BUILDS = f"{ROOT}/build"
COMPILER_CACHE = f"{ROOT}/ccache"
ARCHIVES = "/opt/llama.cpp/archives"

UNIT = "gpuquilt-build-"
"""What the names of all transient units that build begin with."""

_STEP_OF_DOCKER = re.compile(r"^#\d+ [\d.]+ ")
"""What Docker puts before a line of a build: the step, and since how many seconds it runs."""

BUILD_SPACE = 3072
"""MiB below `ROOT` for source, objects and the compiler cache; a CPU build of all targets was seen to take 1.2 GiB."""
RELEASE_SPACE = 512
"""MiB below `RELEASES` and `ARCHIVES` for one more release."""

# The folders need not be there yet: then their file system is that of the folder above.
FREE = """free() {
    place=$1
    while [ ! -d "$place" ]; do place=$(dirname "$place"); done
    df -Pm "$place" | awk 'NR == 2 {print $4}'
}"""
"""A function of the shell that prints how many MiB are free at a path."""


@dataclass(frozen=True)
class Room:
    """How much room a host has for a release that it has not got yet, in MiB.

    :param releases: free where releases lie
    :param builds: free where builds lie
    :param built: taken there already by what the next build uses: files of an earlier one, or images
    :param place: where builds lie
    """

    releases: int
    builds: int
    built: int
    place: str = "/var"


def problems_of_backend(plan: HostPlan) -> list[str]:
    """Why this host's release cannot be built at all, one sentence each, without its name."""
    backend = plan.profile.backend
    if plan.runtime == "docker" or backend in _buildable(plan):
        return []
    known = load().distributions.get(plan.profile.system)
    where = known.title if known else plan.profile.system
    instead = "vulkan" if "vulkan" in _buildable(plan) else "cpu"
    return [
        f"its release is planned for {backend}, which on {where} can be built in containers alone: set runtime ="
        f' "docker" for this host, or backend = "{instead}".'
    ]


def problems_of_space(plan: HostPlan, room: Room) -> list[str]:
    """Why this host has too little room for its release, one sentence each, without its name."""
    places = [("/opt", room.releases, RELEASE_SPACE, "a release")]
    if plan.builds:
        places.append((room.place, room.builds, max(BUILD_SPACE - room.built, 0), "a build"))
    return lacking(places)


def lacking(places: Iterable[tuple[str, int, int, str]]) -> list[str]:
    """Where there is too little room, one sentence each.

    :param places: path, MiB free there, MiB needed there, and what for
    """
    return [
        f"{path} has {free} MiB free, and {what} needs {needed} MiB: free some space there."
        for path, free, needed, what in places
        if free < needed
    ]


def tools(plan: HostPlan) -> tuple[str, ...]:
    """The Debian packages that a host needs to build its release."""
    return TOOLS + (WEB_TOOLS if _with_web_ui(plan) else ()) + (_vulkan_tools(plan) if plan.profile.backend == "vulkan" else ())


def _buildable(plan: HostPlan) -> tuple[str, ...]:
    """The backends that the host itself can build for; whether CUDA's toolkit is to be had is the matter of the role `nvidia`."""
    return ("cpu", "cuda", "vulkan") if _vulkan_tools(plan) else ("cpu", "cuda")


def _vulkan_tools(plan: HostPlan) -> tuple[str, ...]:
    known = load().distributions.get(plan.profile.system)
    return known.graphics.vulkan_build if known else ()


def _with_web_ui(plan: HostPlan) -> bool:
    return plan.profile.options.get("LLAMA_BUILD_UI") == "ON"


def build_folder(release: str) -> str:
    return f"{BUILDS}/{release}"


def release_folder(release: str) -> str:
    return f"{RELEASES}/{release}"


def partial_folder(release: str) -> str:
    """Where a release lies until it has passed the gate: beside the others, so that a rename finishes it."""
    return f"{RELEASES}/.{release}.partial"


def archive(release: str) -> str:
    return f"{ARCHIVES}/{release}.tar.zst"


def build_script(plan: HostPlan, jobs: int) -> str:
    """The shell script that leaves the release in its partial folder and its archive beside.

    :param jobs: how many compilers run at once; 0: as many as there are cores, and memory for
    """
    return render(
        "build/llama_cpp.sh.j2",
        release=plan.release,
        commit=plan.commit,
        options=plan.profile.options,
        targets=plan.profile.targets,
        web_ui=_with_web_ui(plan),
        host=plan.name,
        jobs=jobs,
        root=ROOT,
        cache=COMPILER_CACHE,
        source=SOURCE,
        build=build_folder(plan.release),
        partial=partial_folder(plan.release),
        archive=archive(plan.release),
    )


def stop_builds(but: str = "") -> str:
    """The command that ends what an earlier run still builds here, so that no two builds share the source.

    :param but: the release whose build may go on
    """
    return f"""for unit in $(systemctl list-units --plain --no-legend --all '{UNIT}*' | cut -d ' ' -f 1); do
    [ "$unit" = {UNIT}{but}.service ] || systemctl stop "$unit"
done"""


def progress(commit: str) -> Callable[[str], str]:
    """What makes a sentence for a person out of the last line of the build's log."""
    name = f"llama.cpp {commit[:12]}"
    sentence = f"{name}: waiting"

    def read(line: str) -> str:
        nonlocal sentence
        # Between two steps the log may end in a compiler's warning: what was said before still holds.
        said = _STEP_OF_DOCKER.sub("", line).strip()
        if step := re.match(r"\[ *(\d+)%\]", said):
            sentence = f"{name}: {step[1]} % built"
        elif said in ("configuring", "building", "packing") or said.startswith("pulling "):
            sentence = f"{name}: {said}"
        elif said != line and sentence.endswith("waiting"):
            sentence = f"{name}: preparing the images"
        return sentence

    return read


def superfluous(paths: Iterable[str], keep: Collection[str]) -> list[str]:
    """Those of the paths that no release to keep needs, sorted.

    :param paths: what lies in the folders of the releases, archives, builds and work
    :param keep: names of releases
    """
    return sorted(path for path in paths if not _is_needed(PurePosixPath(path), keep))


def _is_needed(path: PurePosixPath, keep: Collection[str]) -> bool:
    if str(path.parent) == RELEASES:
        return path.name in keep
    if str(path.parent) == ARCHIVES:
        return path.name.removesuffix(".tar.zst") in keep
    if path.name.startswith(UNIT):
        return path.name.removeprefix(UNIT) in keep
    return False
