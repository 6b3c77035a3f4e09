"""Which releases a host has."""

from __future__ import annotations

from pyinfra.api import FactBase
from typing_extensions import override

from roles.base.operations import WORK
from roles.cluster.state import CURRENT, RELEASES
from roles.llama_cpp.manifest import FILE, Manifest
from roles.llama_cpp.recipe import ARCHIVES, BUILDS, ROOT, UNIT, Room, release_folder

_MARK = "::gpuquilt release "


class ReleasesFact(FactBase[dict[str, Manifest]]):
    """Finished releases by name; a folder whose manifest is missing, broken or another's is none."""

    @override
    def command(self) -> str:
        return f"""for file in {RELEASES}/*/{FILE}; do
    [ -e "$file" ] || continue
    echo "{_MARK}$(basename "$(dirname "$file")")"
    cat "$file"
done"""

    @override
    def process(self, output: list[str]) -> dict[str, Manifest]:
        texts: dict[str, list[str]] = {}
        name = ""
        for line in output:
            if line.startswith(_MARK):
                name = line.removeprefix(_MARK)
            texts.setdefault(name, []).append("" if line.startswith(_MARK) else line)
        manifests = {name: Manifest.from_json("\n".join(lines)) for name, lines in texts.items()}
        return {name: found for name, found in manifests.items() if found is not None and found.release == name}

    @override
    @staticmethod
    def default() -> dict[str, Manifest]:
        return {}


class RoomFact(FactBase[Room | None]):
    """The room for a release; None where the host has that release already."""

    @override
    def command(self, release: str) -> str:
        # The folders need not be there yet: then their file system is that of the folder above.
        return f"""[ -e {release_folder(release)}/{FILE} ] && exit 0
free() {{ place=$1; while [ ! -d "$place" ]; do place=$(dirname "$place"); done; df -Pm "$place" | awk 'NR == 2 {{print $4}}'; }}
echo "$(free {RELEASES}) $(free {ROOT}) $(du -sm {ROOT} 2>/dev/null | cut -f 1)"
"""

    @override
    def process(self, output: list[str]) -> Room | None:
        releases, builds, *built = (int(word) for word in output[0].split())
        return Room(releases, builds, sum(built))

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
