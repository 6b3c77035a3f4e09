"""What is said of a host that runs something, nothing, or what it should."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from roles.cluster.plan import Plan
from roles.cluster.state import LLAMA_SERVER, RPC_SERVER, HostState, Seen
from roles.cluster.switch import Switch
from roles.preflight.steps import steps
from tests.unit.cluster.examples import OLDER, good_plan, running, wanted
from tests.unit.llama_cpp.test_image import PLAN as IMAGES

PLAN = good_plan()
NEW = wanted(PLAN)
OLD = wanted(good_plan(commit=OLDER))
WORKERS = ("192.0.2.11:50052", "192.0.2.12:50052")
RELEASE = {name: there.release for name, there in PLAN.hosts.items()}


def said(seen: Mapping[str, Seen], releases: Iterable[str] = RELEASE.values(), plan: Plan = PLAN) -> dict[str, tuple[str, ...]]:
    """Host → what would be done there.

    :param releases: those that every host has
    """
    switch = Switch(plan, wanted=wanted(plan), seen=dict(seen))
    return {name: steps(switch, name, set(releases)) for name in plan.hosts}


def all_run(states: Mapping[str, HostState]) -> dict[str, Seen]:
    return {name: running(state, WORKERS if name == "head" else ()) for name, state in states.items()}


def test_where_all_is_as_it_should_be_nothing_is_done() -> None:
    assert said(all_run(NEW)) == {name: (f"nothing: {release} runs already",) for name, release in RELEASE.items()}


def test_a_new_host_gets_a_release_and_starts_it() -> None:
    assert said({name: Seen() for name in RELEASE}, releases=[]) == {
        "w1": (f"build {RELEASE['w1']}", f"switch to {RELEASE['w1']}", f"start {RPC_SERVER}"),
        "w2": (f"get {RELEASE['w2']} from w1", f"switch to {RELEASE['w2']}", f"start {RPC_SERVER}"),
        "head": (f"build {RELEASE['head']}", f"switch to {RELEASE['head']}", f"start {LLAMA_SERVER}"),
    }


def test_where_containers_run_images_are_built_and_got() -> None:
    found = said({name: Seen() for name in RELEASE}, releases=[], plan=IMAGES)
    release = IMAGES.hosts["w1"].release
    assert (found["w1"][0], found["w2"][0]) == (f"build the image of {release}", f"get the image of {release} from w1")
    assert found["head"][0] == f"build {RELEASE['head']}"


def test_an_upgrade_names_both_releases() -> None:
    found = said(all_run(OLD), releases=[])
    assert found["w1"] == (
        f"build {RELEASE['w1']}",
        f"switch from {OLD['w1'].release} to {RELEASE['w1']}",
        f"restart {RPC_SERVER}",
    )


def test_what_was_built_by_a_run_that_broke_off_is_not_built_again() -> None:
    assert said(all_run(OLD))["head"][0] == f"switch from {OLD['head'].release} to {RELEASE['head']}"


def test_a_worker_that_stopped_is_started_and_its_head_restarted() -> None:
    seen = all_run(NEW)
    stopped = replace(seen["w2"].services[RPC_SERVER], active=False)
    seen["w2"] = replace(seen["w2"], services={RPC_SERVER: stopped})
    found = said(seen)
    assert found["w1"] == (f"nothing: {RELEASE['w1']} runs already",)
    assert found["w2"] == (f"start {RPC_SERVER}: it does not run",)
    assert found["head"] == (f"restart {LLAMA_SERVER}: its worker w2 is restarted",)


def test_a_unit_that_the_host_is_not_to_have_any_more_is_removed() -> None:
    seen = all_run(NEW)
    seen["w1"] = replace(seen["w1"], services={**seen["w1"].services, **seen["head"].services})
    assert said(seen)["w1"] == (f"stop and remove {LLAMA_SERVER}",)
