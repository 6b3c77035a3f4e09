"""llama.cpp at one pinned commit: its source, its build, and releases side by side.

On the host: /opt/llama.cpp/releases/<release>/ (bin/ lib/ manifest.json) · /opt/llama.cpp/archives/ (what other hosts get) ·
on one that builds also /var/cache/gpuquilt/ (source, unfinished builds, compiler cache). Where it runs in containers:
/opt/llama.cpp/releases/<release>/ (manifest.json Dockerfile) · the image gpuquilt/llama.cpp:<release>.
Which release is in use is not decided here: `current` belongs to the switch.
"""

from collections.abc import Callable

from pyinfra import host
from pyinfra.api import deploy

from roles.base.settings import HostSettings
from roles.cluster.facts import SeenFact
from roles.cluster.plan import HostPlan
from roles.llama_cpp.facts import ReleasesFact, RoomFact
from roles.llama_cpp.kinds import kind_of
from roles.llama_cpp.manifest import Manifest, missing_flags
from roles.llama_cpp.operations import build_tools, built_release, fetched_release, nothing, only_releases
from roles.llama_cpp.recipe import problems_of_backend
from roles.llama_cpp.settings import Settings

__all__ = ["Manifest", "Settings", "build", "check", "check_before", "fetch", "missing_flags", "prepare", "prune", "remove"]

LONGEST_BUILD = 6 * 3600
"""Seconds. A run that ends before the build does leaves it running, and the next one follows it."""
LONGEST_TRANSFER = 3600
"""Seconds for one host to get its release."""


def check(plan: HostPlan, settings: HostSettings) -> list[str]:
    """Why this host cannot have its release, one sentence each, as far as that can be known before anything is changed."""
    room = host.get_fact(RoomFact, plan=plan)
    return problems_of_backend(plan) + ([] if room is None else kind_of(plan).problems_of_space(plan, room))


def check_before(plan: HostPlan, settings: HostSettings) -> list[str]:
    """Why this host cannot go back to its release before, one sentence each: whoever cleans up Docker takes its image away."""
    before = host.get_fact(SeenFact).before
    if before is None or before.release in host.get_fact(ReleasesFact):
        return []
    return [
        f"its release before, {before.release}, is not there any more (its folder or its image was removed, or Docker does not"
        f" run): start Docker if it should run, or make the inventory what it was then (commit {before.commit[:12]}) and run"
        " deploys/cluster.py, which builds it anew."
    ]


@deploy("llama.cpp")
def prepare(plan: HostPlan) -> None:
    """Install the build tools, on hosts that build; touches no service."""
    build_tools(name="Build tools", plan=plan, _timeout=LONGEST_TRANSFER)


@deploy("llama.cpp")
def build(plan: HostPlan, settings: Settings) -> None:
    """Build the release, on hosts that build; the one in use goes on serving."""
    built_release(name="Build", plan=plan, repository=settings.repository, jobs=settings.jobs, _timeout=LONGEST_BUILD)


@deploy("llama.cpp")
def fetch(plan: HostPlan) -> None:
    """Get the release from the host that built it, on the others; call it after `build` on every host."""
    fetched_release(name="Release of the host that builds", plan=plan, _timeout=LONGEST_TRANSFER)


@deploy("llama.cpp")
def prune(keep: Callable[[], frozenset[str]]) -> None:
    """Remove the releases that nobody needs, with what their builds left.

    :param keep: gives the names of the releases to keep, when the operation runs
    """
    only_releases(name="Old releases", keep=keep, _timeout=LONGEST_TRANSFER)


@deploy("llama.cpp")
def remove() -> None:
    """Take back releases, images, archives and builds; what still builds is stopped."""
    nothing(name="No releases and builds")
