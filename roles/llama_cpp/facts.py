"""Which releases a host has."""

from __future__ import annotations

from pyinfra.api import FactBase
from typing_extensions import override

from roles.base.operations import WORK
from roles.cluster.plan import HostPlan
from roles.cluster.state import CURRENT, RELEASES
from roles.llama_cpp import image
from roles.llama_cpp.kinds import kind_of
from roles.llama_cpp.manifest import FILE, Manifest
from roles.llama_cpp.recipe import ARCHIVES, BUILDS, UNIT, Room

_MARK = "::gpuquilt release "
_IMAGE = "::gpuquilt image "


class ReleasesFact(FactBase[dict[str, Manifest]]):
    """Finished releases by name; a folder whose manifest is missing, broken or another's is none.

    Nor is one without the very image that its manifest names, where it names one, or whose image is labelled with another commit.
    """

    @override
    def command(self) -> str:
        return f"""for file in {RELEASES}/*/{FILE}; do
    [ -e "$file" ] || continue
    name=$(basename "$(dirname "$file")")
    echo "{_MARK}$name"
    cat "$file"
    grep -q '"image": "sha256:' "$file" && {image.show(_IMAGE)}
done
true"""

    @override
    def process(self, output: list[str]) -> dict[str, Manifest]:
        texts: dict[str, list[str]] = {}
        images: dict[str, list[str]] = {}
        name = ""
        for line in output:
            if line.startswith(_MARK):
                name = line.removeprefix(_MARK)
            elif line.startswith(_IMAGE):
                images[name] = line.removeprefix(_IMAGE).split()
            else:
                texts.setdefault(name, []).append(line)
        manifests = {name: Manifest.from_json("\n".join(lines)) for name, lines in texts.items()}
        return {
            name: found
            for name, found in manifests.items()
            if found is not None
            and found.release == name
            and (not found.image or images.get(name) == [found.image, found.commit])
        }

    @override
    @staticmethod
    def default() -> dict[str, Manifest]:
        return {}


class RoomFact(FactBase[Room | None]):
    """The room for a release; None where the host has that release already."""

    @override
    def command(self, plan: HostPlan) -> str:
        return kind_of(plan).room(plan)

    @override
    def process(self, output: list[str]) -> Room | None:
        releases, builds, *more = output[0].split(maxsplit=3)
        return Room(int(releases), int(builds), int(more[0]) if more else 0, *more[1:])

    @override
    @staticmethod
    def default() -> None:
        return None


class StockFact(FactBase[list[str]]):
    """The paths of everything that building and getting releases left on the host, the release in use left out."""

    @override
    def command(self) -> str:
        folders = f"{RELEASES} {ARCHIVES} {BUILDS}"
        return f"""current=$(readlink -f {CURRENT})
find {folders} -mindepth 1 -maxdepth 1 ! -path "$current" 2>/dev/null
find {WORK} -mindepth 1 -maxdepth 1 -name '{UNIT}*' 2>/dev/null
true"""

    @override
    def process(self, output: list[str]) -> list[str]:
        return output

    @override
    @staticmethod
    def default() -> list[str]:
        return []


class ImagesFact(FactBase[list[str]]):
    """The container images of ours that no container uses, by tag, or by ID where they have none any more."""

    default = list

    @override
    def command(self) -> str:
        return image.LIST

    @override
    def process(self, output: list[str]) -> list[str]:
        return image.unused(output)
