"""What is switched, and what is not, decided from what all hosts show."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from roles.base.remote import Answer
from roles.cluster import operations
from roles.cluster.banner import Device
from roles.cluster.state import LLAMA_SERVER, RPC_SERVER, HostState, Seen, Service, Unit
from roles.cluster.switch import Switch, fits, foreign_units, other_gpus
from tests.unit.cluster.examples import NEWER, OLDER, good_plan, head, host, machine, offered, plan_of, running, wanted, worker

ENDPOINTS = ("192.0.2.11:50052", "192.0.2.12:50052")
PLAN = good_plan()
NEW = wanted(PLAN)
OLD = wanted(good_plan(commit=OLDER))


def looked(**shown: Seen) -> Switch:
    """A switch to the newer commit whose hosts run it already, but for those that are named."""
    seen = {name: running(state, ENDPOINTS if name == "head" else ()) for name, state in NEW.items()}
    return Switch(PLAN, wanted=dict(NEW), seen=seen | shown)


def touched(switch: Switch) -> dict[str, list[str]]:
    """Host → why it is restarted."""
    reasons = {name: switch.worker_reasons(name) + switch.head_reasons(name) for name in switch.plan.hosts}
    assert {name for name, why in reasons.items() if why} == {name for name in switch.plan.hosts if switch.changed(name)}
    return {name: why for name, why in reasons.items() if why}


def test_where_everything_is_as_it_should_be_nothing_is_switched() -> None:
    switch = looked()
    assert touched(switch) == {}
    assert switch.obstacle == ""


def test_a_worker_that_runs_the_older_release_is_switched_and_the_head_with_it_and_no_other() -> None:
    switch = looked(w1=running(OLD["w1"]))
    assert list(touched(switch)) == ["w1", "head"]
    assert touched(switch)["head"] == ["its worker w1 is restarted"]


def test_an_upgrade_touches_all_hosts() -> None:
    seen = {name: running(state, ENDPOINTS if name == "head" else ()) for name, state in OLD.items()}
    assert list(touched(looked(**seen))) == ["w1", "w2", "head"]


def test_hosts_where_nothing_is_installed_are_all_started() -> None:
    assert list(touched(looked(w1=Seen(), w2=Seen(), head=Seen()))) == ["w1", "w2", "head"]


def test_a_head_that_lost_a_worker_is_restarted_alone() -> None:
    switch = looked(head=running(NEW["head"], ["192.0.2.11:50052"]))
    assert touched(switch) == {"head": ["its connection to 192.0.2.12:50052 is lost"]}


def test_a_head_is_not_restarted_for_a_worker_that_it_does_not_use() -> None:
    plan = plan_of([worker(), worker("w2", "192.0.2.12"), head(endpoints=["w1:50052"])])
    states = wanted(plan)
    seen = {
        "w1": running(states["w1"]),
        "w2": replace(running(states["w2"]), current="elsewhere"),
        "head": running(states["head"], ENDPOINTS[:1]),
    }
    assert list(touched(Switch(plan, wanted=states, seen=seen))) == ["w2"]


def test_two_heads_are_restarted_each_for_its_own_worker() -> None:
    heads = [head("a", "192.0.2.8", endpoints=["w1:50052"]), head("b", "192.0.2.9", endpoints=["w2:50052"])]
    plan = plan_of([worker(), worker("w2", "192.0.2.12"), *heads])
    states = wanted(plan)
    seen = {
        "w1": Seen(),
        "w2": running(states["w2"]),
        "a": running(states["a"], ENDPOINTS[:1]),
        "b": running(states["b"], ENDPOINTS[1:]),
    }
    assert list(touched(Switch(plan, wanted=states, seen=seen))) == ["w1", "a"]


@pytest.mark.parametrize("unit", [RPC_SERVER, LLAMA_SERVER])
def test_a_host_can_only_go_back_to_what_fits_the_inventory(unit: str) -> None:
    plan = plan_of([host("laptop", ["workers", "heads"], machine("192.0.2.10"))])
    now = wanted(plan)["laptop"]
    fewer = replace(now, units={name: found for name, found in now.units.items() if name != unit})
    elsewhere = replace(now, units={**now.units, unit: replace(now.units[unit], endpoints=("192.0.2.10:50053",))})
    assert fits(plan.hosts["laptop"], now)
    assert not fits(plan.hosts["laptop"], fewer)
    assert not fits(plan.hosts["laptop"], elsewhere)


def test_a_host_does_not_go_back_to_gpus_that_it_has_not() -> None:
    """The unit of then may name them, and is not rendered anew."""
    plan = replace(PLAN.hosts["w1"], gpus=1)
    before = OLD["w1"]

    def lent(gpus: int) -> str:
        return other_gpus(plan, replace(before, units={RPC_SERVER: replace(before.units[RPC_SERVER], gpus=gpus)}))

    assert lent(2) == "its worker lent 2 GPUs before the last switch, and 1 are there now"
    # Where nobody knows, or the inventory names them, it is tried.
    assert lent(1) == lent(0) == other_gpus(plan, replace(before, units={})) == ""


@pytest.mark.parametrize("unit", [RPC_SERVER, LLAMA_SERVER])
def test_a_host_that_was_offered_less_than_it_is_to_have_is_missing(unit: str) -> None:
    """As after a failure that somebody had pyinfra ignore: what runs must not be taken for superfluous."""
    plan = plan_of([host("laptop", ["workers", "heads"], machine("192.0.2.10"))])
    now = wanted(plan)["laptop"]
    fewer = replace(now, units={name: found for name, found in now.units.items() if name != unit})
    switch = Switch(plan, wanted={"laptop": fewer}, seen={"laptop": running(now, ["192.0.2.10:50052"])})
    assert switch.missing == ["laptop"]
    assert "no host was switched" in switch.obstacle
    assert not switch.changed("laptop")


def test_a_host_that_is_no_worker_any_more_is_changed() -> None:
    both = wanted(plan_of([host("laptop", ["workers", "heads"], machine("192.0.2.10")), worker()]))["laptop"]
    plan = plan_of([head("laptop", "192.0.2.10"), worker()])
    states = wanted(plan)
    switch = Switch(plan, wanted=states, seen={"laptop": running(both, ENDPOINTS[:1]), "w1": running(states["w1"])})
    assert switch.superfluous("laptop") == [RPC_SERVER]
    assert switch.changed("laptop")


def test_a_unit_of_somebody_else_is_not_replaced() -> None:
    theirs = Seen(services={RPC_SERVER: Service(file_digest="f" * 64, ours=False)})
    assert foreign_units(PLAN.hosts["w1"], theirs) == [
        "/etc/systemd/system/rpc-server.service is not ours, and would be replaced: remove it, or rename it and its service."
    ]
    assert foreign_units(PLAN.hosts["head"], theirs) == []
    assert foreign_units(PLAN.hosts["w1"], running(NEW["w1"])) == []


def test_a_new_host_with_a_build_of_its_own_moves_nothing() -> None:
    """What ran before the last upgrade stays the release before, on the hosts that are there."""
    plan = plan_of([worker(), head(), host("w3", ["workers"], machine("192.0.2.13", os_version="12"))])
    states = wanted(plan)
    two = wanted(plan_of([worker(), head()]))
    seen = {"w1": running(two["w1"], before=OLD["w1"]), "head": running(two["head"], before=OLD["head"]), "w3": Seen()}
    switch = Switch(plan, wanted=states, seen=seen)
    assert states["w1"].generation != two["w1"].generation
    assert not switch.moves("w1")
    assert switch.keep("w1") == {states["w1"].release, OLD["w1"].release}


def test_a_run_that_died_while_it_remembered_is_finished_without_moving_twice() -> None:
    switch = looked(w1=running(NEW["w1"], before=OLD["w1"]), w2=running(OLD["w2"]), head=running(OLD["head"]))
    assert [switch.moves(name) for name in ("w1", "w2", "head")] == [False, True, True]


@pytest.mark.parametrize("forget", ["wanted", "seen"])
def test_while_a_host_is_missing_nothing_may_be_switched(forget: str) -> None:
    switch = looked(w1=running(OLD["w1"]))
    del getattr(switch, forget)["w2"]
    assert switch.missing == ["w2"]
    assert switch.obstacle == "w2: not ready for the switch (the reason stands above), so no host was switched."
    assert not switch.changed("w1")
    assert not switch.changed("head")


def test_states_that_do_not_belong_together_are_not_switched_to() -> None:
    switch = looked()
    switch.wanted["w2"] = OLD["w2"]
    assert switch.obstacle == (
        "inventory: what the hosts would run does not belong together"
        " (w1 222222222222, w2 111111111111, head 222222222222), so no host was switched:"
        " run deploys/cluster.py, which brings all hosts to one commit."
    )


def test_the_same_commit_with_other_options_does_not_belong_together_either() -> None:
    switch = looked()
    switch.wanted["w2"] = wanted(good_plan(cmake_options={"GGML_LTO": "ON"}))["w2"]
    assert "does not belong together" in switch.obstacle


def test_units_are_offered_by_host() -> None:
    switch = Switch(PLAN)
    mine, yours = offered(RPC_SERVER, "a"), offered(LLAMA_SERVER, "b")
    switch.offer("w1", RPC_SERVER, mine)
    switch.offer("head", LLAMA_SERVER, yours)
    assert switch.offered == {"w1": {RPC_SERVER: mine}, "head": {LLAMA_SERVER: yours}}


def test_the_first_reason_of_a_failure_wins() -> None:
    switch = Switch(PLAN)
    switch.fail("w1", "it does not listen")
    switch.fail("w1", "something that followed from it")
    assert switch.failures == {"w1": "it does not listen"}


def test_after_an_upgrade_the_new_release_and_the_one_before_are_kept() -> None:
    switch = looked(w1=running(OLD["w1"]))
    assert switch.keep("w1") == {NEW["w1"].release, OLD["w1"].release}


def test_a_run_with_nothing_new_keeps_the_same_two_releases() -> None:
    switch = looked(w1=running(NEW["w1"], before=OLD["w1"]))
    assert switch.keep("w1") == {NEW["w1"].release, OLD["w1"].release}


def test_an_upgrade_forgets_the_release_before_the_last() -> None:
    oldest = HostState("oldest", "0" * 40, "0000", {})
    switch = looked(w1=running(OLD["w1"], before=oldest))
    assert switch.keep("w1") == {NEW["w1"].release, OLD["w1"].release}


def test_a_first_run_keeps_what_it_installed() -> None:
    assert looked(w1=Seen()).keep("w1") == {NEW["w1"].release}


def failed(**shown: Seen) -> Switch:
    """A switch of all hosts whose head did not answer."""
    switch = looked(**shown)
    switch.fail("head", "It does not answer.")
    switch.restored |= set(shown)
    return switch


def test_after_the_way_back_the_outcome_is_the_release_before() -> None:
    switch = failed(w1=running(OLD["w1"]), w2=running(OLD["w2"]), head=running(OLD["head"]))
    assert switch.outcome == "Every host is back on the release before, which answers."


def test_without_a_release_before_the_outcome_says_that_nothing_runs() -> None:
    switch = failed(w1=Seen(), w2=Seen(), head=Seen())
    assert switch.outcome == (
        "There was no release before to go back to, so the services were stopped; correct the cause and run again."
    )


def test_a_host_that_had_nothing_to_go_back_to_is_named() -> None:
    switch = failed(w1=running(OLD["w1"]), w2=Seen(), head=running(OLD["head"]))
    assert switch.outcome == "The other hosts are back on the release before, which answers; the services of w2 were stopped."


def test_a_host_that_could_not_go_back_is_named() -> None:
    switch = failed(w1=running(OLD["w1"]), head=running(OLD["head"]))
    switch.stranded["w2"] = "it does not listen"
    assert switch.outcome == "w2 could not go back: look there, and run the deploy again."


def test_a_worker_that_served_otherwise_than_planned_may_go_back_to_that() -> None:
    """Or the endpoint, which answered until now, would stay away for as long as the GPU."""
    state = OLD["w1"]
    state = replace(state, units={RPC_SERVER: replace(state.units[RPC_SERVER], backend="cuda", gpus=2)})
    ran = running(state)

    def serving(*names: str) -> Switch:
        devices = tuple(Device(name, "of some kind") for name in names)
        return looked(w1=replace(ran, services={RPC_SERVER: replace(ran.services[RPC_SERVER], devices=devices)}), w2=Seen())

    for amiss in (["CPU"], ["CUDA0"], ["CUDA0", "CUDA1", "CUDA2"]):
        back = serving(*amiss).back("w1")
        assert back is not None
        assert back.units[RPC_SERVER] == replace(state.units[RPC_SERVER], backend="")
    assert serving("CUDA0", "CUDA1").back("w1") == serving().back("w1") == state
    assert serving().back("w2") is None


def test_a_head_goes_back_whatever_it_computed_with() -> None:
    """What it says at its start is not looked at before a switch."""
    state = OLD["head"]
    state = replace(state, units={LLAMA_SERVER: replace(state.units[LLAMA_SERVER], backend="cuda")})
    back = looked(head=running(state)).back("head")
    assert back is not None
    assert back.units[LLAMA_SERVER] == replace(state.units[LLAMA_SERVER], backend="")


def test_the_two_commits_of_these_tests_differ() -> None:
    assert (NEW["w1"].commit, OLD["w1"].commit) == (NEWER, OLDER)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What hosts are told, all of which goes well."""
    commands: list[str] = []

    def run(_state: object, _host: object, command: str) -> Answer:
        commands.append(command)
        return Answer(True, [], [])

    monkeypatch.setattr(operations, "run", run)
    monkeypatch.setattr(operations, "say", lambda *_: None)
    return commands


def goes_back(switch: Switch, host: str) -> None:
    for unit in (RPC_SERVER, LLAMA_SERVER):
        operations._take_back(None, SimpleNamespace(name=host), switch, unit, {})  # type: ignore[arg-type]
    assert switch.restored == {host}


def test_a_service_of_the_users_own_is_left_alone_when_the_switch_goes_back(told: list[str]) -> None:
    own = Seen(services={LLAMA_SERVER: Service(active=True, enabled=True, file_digest="f" * 64)})
    goes_back(looked(w1=own), "w1")
    assert told == ["systemctl disable --now rpc-server.service 2>/dev/null || true"]


def test_what_the_switch_has_put_on_a_head_is_stopped_when_it_goes_back(told: list[str]) -> None:
    """It was none of the workers before: a release without its program is what it goes back to."""
    switch = looked(head=running(OLD["head"]))
    switch.wanted["head"] = replace(NEW["head"], units={**NEW["head"].units, **NEW["w1"].units})
    goes_back(switch, "head")
    stop, disable, install = told
    assert stop.startswith("systemctl stop llama-server.service")
    assert disable == "systemctl disable --now rpc-server.service 2>/dev/null || true"
    assert f"systemctl restart --no-block {LLAMA_SERVER}" in install


def test_what_runs_is_stopped_before_its_unit_is_another(told: list[str]) -> None:
    """Seen for real: by the unit of a program of the host, a container is not stopped, and keeps the port."""
    state = HostState("release", NEWER, "aaaa", {RPC_SERVER: Unit("[Unit]\n", "", ())})
    operations._install(None, None, RPC_SERVER, state)  # type: ignore[arg-type] # nobody looks at what is None
    (script,) = told
    steps = ["systemctl stop rpc-server.service", "mv /etc/systemd/system", "daemon-reload", "systemctl restart --no-block"]
    places = [script.index(step) for step in steps]
    assert places == sorted(places)
