"""The two kinds of releases, a folder of programs and a container image, behind one face. Pure.

What they have in common: a release lies in its partial folder until it has passed the gate, and has its name once that folder
has been renamed, which is the last step.
"""

from __future__ import annotations

from typing import Protocol

from roles.cluster.plan import HostPlan
from roles.llama_cpp import folder, image
from roles.llama_cpp.recipe import Room


class Kind(Protocol):
    """What differs between them; the modules `folder` and `image` have it. What is called lines is for a shell with `set -e`."""

    def tools(self, plan: HostPlan, /) -> tuple[str, ...]:
        """The Debian packages that a host needs to build it."""

    def room(self, plan: HostPlan, /) -> str:
        """The command that prints a `Room`'s values, in order, or nothing where the host has the release."""

    def problems_of_space(self, plan: HostPlan, room: Room, /) -> list[str]:
        """Why this host has too little room for it, one sentence each, without its name."""

    def build_script(self, plan: HostPlan, jobs: int, /) -> str:
        """The script that leaves the release under its partial name.

        :param jobs: how many compilers run at once; 0: as many as there are cores, and memory for
        """

    def examine(self, plan: HostPlan, /) -> str:
        """The command that shows to `gate.parse` what lies under the partial name."""

    def about(self, plan: HostPlan, /) -> str:
        """Lines that print what a build has noted: ``compiler …``, ``unknown …`` (options), and ``archive …`` (its SHA-256),
        if there is one."""

    def unpack(self, plan: HostPlan, sent: str, /) -> str:
        """Lines that make the release under its partial name of an archive.

        :param sent: the archive, whole and verified; it is not needed afterwards
        """

    def before_name(self, plan: HostPlan, image: str, /) -> str:
        """Lines for what is to be done before the folder gets its name.

        :param image: the ID of the image that was examined, if it is one
        """


def kind_of(plan: HostPlan) -> Kind:
    """The kind of a host's release."""
    return image if plan.profile.in_container else folder
