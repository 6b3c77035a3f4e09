"""Whether a host has room for its release."""

from __future__ import annotations

from roles.cluster.plan import HostPlan
from roles.llama_cpp.recipe import Room, problems_of_space
from tests.unit.cluster.examples import good_plan

BUILDER: HostPlan = good_plan().hosts["w1"]
RECEIVER: HostPlan = good_plan().hosts["w2"]


def test_a_host_that_builds_needs_room_for_the_build_and_for_the_release() -> None:
    assert problems_of_space(BUILDER, Room(releases=100, builds=2000, built=0)) == [
        "/opt has 100 MiB free, and a release needs 512 MiB: free some space there.",
        "/var has 2000 MiB free, and a build needs 3072 MiB: free some space there.",
    ]


def test_what_a_build_that_broke_off_has_taken_already_is_not_asked_for_again() -> None:
    assert problems_of_space(BUILDER, Room(releases=1000, builds=2000, built=1100)) == []


def test_a_host_that_builds_nothing_needs_no_room_for_a_build() -> None:
    assert problems_of_space(RECEIVER, Room(releases=600, builds=100, built=0)) == []
