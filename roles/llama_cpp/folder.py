"""A release whose programs lie in its own folder and run on the host itself; see `kinds.Kind`. Pure."""

from __future__ import annotations

from shlex import quote

from roles.cluster.plan import HostPlan
from roles.cluster.state import RELEASES
from roles.llama_cpp import gate
from roles.llama_cpp.manifest import FILE
from roles.llama_cpp.recipe import (
    FREE,
    ROOT,
    archive,
    build_folder,
    build_script,
    partial_folder,
    problems_of_space,
    release_folder,
    tools,
)

__all__ = ["about", "before_name", "build_script", "examine", "problems_of_space", "room", "tools", "unpack"]


def room(plan: HostPlan) -> str:
    return f"""[ -e {release_folder(plan.release)}/{FILE} ] && exit 0
{FREE}
echo "$(free {RELEASES}) $(free {ROOT}) $(du -sm {ROOT} 2>/dev/null | cut -f 1)"
"""


def examine(plan: HostPlan) -> str:
    return gate.command(partial_folder(plan.release))


def about(plan: HostPlan) -> str:
    build = quote(build_folder(plan.release))
    return f"""echo "compiler $(cat {build}/compiler)"
echo "unknown $(paste -s -d ' ' {build}/unknown_options)"
echo "archive $(sha256sum <{quote(archive(plan.release))} | cut -c -64)" """


def unpack(plan: HostPlan, sent: str) -> str:
    # It stays here, too: the host that built it may leave the inventory, and then this one gives it to others.
    kept, partial = archive(plan.release), partial_folder(plan.release)
    return f"""chmod 644 {sent}
mv {sent} {kept}
rm -rf {partial}
mkdir -p {partial}
tar -C {partial} --no-same-owner -I zstd -xf {kept}"""


def before_name(plan: HostPlan, image: str) -> str:
    return ""
