"""One plan for all hosts, or the reasons why there cannot be one."""

from dataclasses import replace
from ipaddress import IPv4Address
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roles.cluster.options import HEAD_TARGETS, WORKER_TARGETS, Profile
from roles.cluster.plan import as_data, host_problems
from tests.unit.cluster.examples import NEWER, OLDER, cluster, good_plan, head, host, machine, plan_of, worker


def test_two_workers_and_a_head() -> None:
    plan = good_plan()
    assert plan.commit == NEWER
    assert list(plan.hosts) == ["w1", "w2", "head"]
    there = plan.hosts["head"]
    assert (there.worker, there.head) == (False, True)
    assert there.endpoints == ("192.0.2.11:50052", "192.0.2.12:50052")
    assert there.clients == ()
    assert plan.hosts["w1"].address == IPv4Address("192.0.2.11")
    assert plan.hosts["w1"].clients == (IPv4Address("192.0.2.10"),)
    assert plan.hosts["w1"].endpoints == ()


def test_a_worker_that_no_head_uses_lets_nobody_in() -> None:
    plan = plan_of([worker(), worker("w2", "192.0.2.12"), head(endpoints=["w2:50052"])])
    assert plan.hosts["head"].endpoints == ("192.0.2.12:50052",)
    assert plan.hosts["w1"].clients == ()


def test_the_order_of_endpoints_is_the_users() -> None:
    plan = plan_of([worker(), worker("w2", "192.0.2.12", rpc_port=50053), head(endpoints=["w2:50053", "w1:50052"])])
    assert plan.hosts["head"].endpoints == ("192.0.2.12:50053", "192.0.2.11:50052")


def test_one_host_may_be_worker_and_head() -> None:
    plan = plan_of([host("laptop", ["workers", "heads"], machine("192.0.2.10"))])
    there = plan.hosts["laptop"]
    assert (there.worker, there.head, there.builds) == (True, True, True)
    assert there.endpoints == ("192.0.2.10:50052",)
    assert there.clients == (IPv4Address("192.0.2.10"),)
    assert there.profile.targets == WORKER_TARGETS + HEAD_TARGETS
    assert "-worker-head-" in there.release


def test_hosts_with_the_same_profile_share_one_build() -> None:
    plan = good_plan()
    assert plan.hosts["w1"].builds
    assert plan.hosts["w2"].builder == "w1"
    assert plan.hosts["w1"].release == plan.hosts["w2"].release
    assert plan.hosts["head"].builds
    assert plan.hosts["head"].release != plan.hosts["w1"].release


def test_a_worker_with_an_older_cpu_gets_a_build_of_its_own() -> None:
    old = host("w2", ["workers"], machine("192.0.2.12", cpu_level="v2"))
    plan = plan_of([worker(), old, head()])
    assert plan.hosts["w2"].builds
    assert plan.hosts["w2"].profile.cpu_level == "v2"
    assert plan.hosts["w2"].profile.options["GGML_AVX2"] == "OFF"
    assert plan.hosts["w1"].profile.options["GGML_AVX2"] == "ON"


def test_the_address_in_the_cluster_network_is_found_among_others() -> None:
    laptop = host("w1", ["workers"], machine("172.17.0.1", "10.0.0.7", "192.0.2.11"))
    assert plan_of([laptop, head()]).hosts["w1"].address == IPv4Address("192.0.2.11")


def test_a_declared_address_need_not_be_there_yet() -> None:
    plan = plan_of([host("w1", ["workers"], machine(), address="192.0.2.11"), head()])
    assert plan.hosts["w1"].address == IPv4Address("192.0.2.11")


def test_the_plan_depends_on_nothing_but_what_goes_in() -> None:
    assert plan_of(cluster()) == plan_of(cluster())


PROFILE = Profile("debian13", "v3", "cpu", WORKER_TARGETS, {"GGML_RPC": "ON", "GGML_AVX": "ON"})


def test_a_profile_names_one_build() -> None:
    assert PROFILE.name.startswith("debian13-v3-cpu-worker-")
    assert replace(PROFILE, options={"GGML_AVX": "ON", "GGML_RPC": "ON"}).name == PROFILE.name


def test_the_name_of_a_profile_stays_the_same_from_version_to_version_of_this_project() -> None:
    assert PROFILE.name == "debian13-v3-cpu-worker-fb5cae"


@pytest.mark.parametrize(
    "change",
    [
        {"system": "debian12"},
        {"cpu_level": "v2"},
        {"backend": "cuda"},
        {"targets": HEAD_TARGETS},
        {"targets": WORKER_TARGETS + HEAD_TARGETS},
        {"options": {"GGML_RPC": "ON", "GGML_AVX": "OFF"}},
        {"options": {"GGML_RPC": "ON"}},
        {"options": {"GGML_RPC": "ON", "GGML_AVX": "ON", "GGML_LTO": "ON"}},
        {"toolkit": "12.9"},
        {"architectures": ("61-real",)},
        {"image": "mine:1"},
        {"runtime_image": "mine:1"},
        {"recipe": "0" * 64},
    ],
)
def test_whatever_goes_into_a_build_changes_its_name(change: dict[str, Any]) -> None:
    assert replace(PROFILE, **change).name != PROFILE.name


@pytest.mark.parametrize("setting", [{"web_ui": True}, {"cmake_options": {"GGML_LTO": "ON"}}, {"commit": OLDER}])
def test_settings_of_the_build_make_another_release(setting: dict[str, Any]) -> None:
    assert good_plan(**setting).hosts["head"].release != good_plan().hosts["head"].release


def test_the_web_page_is_no_matter_of_a_worker() -> None:
    """None of its programs has one, so the build would look for it in vain."""
    assert good_plan(web_ui=True).hosts["w1"].release == good_plan().hosts["w1"].release


def test_the_users_cmake_options_win() -> None:
    plan = good_plan(cmake_options={"GGML_AVX2": "OFF", "GGML_LTO": "ON"})
    options = plan.hosts["w1"].profile.options
    assert (options["GGML_AVX2"], options["GGML_LTO"], options["GGML_RPC"]) == ("OFF", "ON", "ON")
    assert plan.machines["w1"].choices == (
        "cmake_options: GGML_AVX2 = 'OFF' from the inventory, in place of ON",
        "cmake_options: GGML_LTO = 'ON' from the inventory",
    )


REFUSALS: dict[str, tuple[list[Any], list[str]]] = {
    "a host in no group": (
        [*cluster(), host("lost", ["desks"], machine("192.0.2.20"))],
        ["lost: it is in no group that we know: put it into `workers`, `heads` or `hypervisors`, or take it out."],
    ),
    "no head": ([worker()], ["inventory: the group `heads` is empty: a cluster needs at least one host in it."]),
    "no worker": ([head()], ["inventory: the group `workers` is empty: a cluster needs at least one host in it."]),
    "two commits": (
        [worker(commit=OLDER), head()],
        [
            "inventory: `commit` differs between hosts (w1 111111111111, head 222222222222):"
            " every host runs the same one, so set it for the group `all`."
        ],
    ),
    "no address in the network": (
        [worker("w1", "203.0.113.5"), head()],
        ["w1: it has no address in network = 192.0.2.0/24 (it has 203.0.113.5): correct `network`."],
    ),
    "several addresses in the network": (
        [host("w1", ["workers"], machine("192.0.2.11", "192.0.2.21")), head()],
        ["w1: it has several addresses in 192.0.2.0/24 (192.0.2.11, 192.0.2.21): set `address` for this host."],
    ),
    "an address outside of the network": (
        [worker(), host("head", ["heads"], machine("192.0.2.10"), address="203.0.113.5")],
        ["head: address = 203.0.113.5 is not in network = 192.0.2.0/24: correct one of them."],
    ),
    "two hosts with one address": (
        [worker(), head("head", "192.0.2.11")],
        ["head: it has the same address as w1 (192.0.2.11): correct one of them."],
    ),
    "two heads on one worker": (
        [
            worker(),
            head("head-a", "192.0.2.8", endpoints=["192.0.2.11:50052"]),
            head("head-b", "192.0.2.9", endpoints=["w1:50052"]),
        ],
        [
            "head-b: 192.0.2.11:50052 is used by head-a too, and a worker serves one head at a time:"
            " give each head its own `endpoints`."
        ],
    ),
    "a head without a worker": (
        [worker(), head(endpoints=[])],
        ["head: endpoints = [] names no worker: leave it out to use all of them."],
    ),
    "endpoints that cannot be used": (
        [worker(), head(endpoints=["w1:50052", "192.0.2.11:50052", "w9:50052"])],
        [
            "head: endpoint '192.0.2.11:50052' is listed twice: take one out, a worker serves one client at a time.",
            "head: endpoint 'w9:50052' names no worker of this inventory (these are w1) and is no IPv4 address.",
        ],
    ),
    "not root": (
        [host("w1", ["workers"], machine("192.0.2.11", root=False)), head()],
        ["w1: we are not root there: log in as root (`ssh_user`), or set `_sudo = True` for this host."],
    ),
    "a sudo that wants a password": (
        [host("w1", ["workers"], machine("192.0.2.11", root=False, sudo="sudo: a password is required"), True), head()],
        ["w1: sudo does not work without a password (sudo: a password is required): allow it with NOPASSWD in /etc/sudoers.d."],
    ),
    "no sudo": (
        [host("w1", ["workers"], machine("192.0.2.11", root=False, sudo=""), True), head()],
        ["w1: sudo does not work without a password (there is no sudo): allow it with NOPASSWD in /etc/sudoers.d."],
    ),
    "another architecture": (
        [host("w1", ["workers"], machine("192.0.2.11", architecture="aarch64", cpu_level="v1")), head()],
        ["w1: its architecture is aarch64: only x86_64 is supported, so take the host out."],
    ),
    "an ancient CPU": (
        [host("w1", ["workers"], machine("192.0.2.11", cpu_level="v1")), head()],
        ["w1: its CPU is older than the level x86-64-v2 (no SSE4.2), too old for llama.cpp: take the host out."],
    ),
    "another distribution": (
        [host("w1", ["workers"], machine("192.0.2.11", os_id="arch", os_name="Arch Linux")), head()],
        ["w1: it runs Arch Linux: only Debian and Ubuntu are supported, so take the host out."],
    ),
    "no systemd": (
        [host("w1", ["workers"], machine("192.0.2.11", systemd=False)), head()],
        ["w1: its PID 1 is not systemd, so services could not be installed: boot it with systemd."],
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_a_refusal_names_host_thing_reason_and_way_out(case: str) -> None:
    hosts, refusals = REFUSALS[case]
    plan = plan_of(hosts)
    assert list(plan.refusals) == refusals


def test_what_is_wrong_with_one_host_leaves_the_plan_for_the_others_to_be_shown() -> None:
    lost = head("head", "198.51.100.10")
    plan = plan_of([worker(), host("w2", ["workers"], machine("192.0.2.12", systemd=False)), lost])
    assert [refusal.partition(":")[0] for refusal in plan.refusals] == ["w2", "head"]
    assert list(plan.hosts) == ["w1"]


def test_every_reason_is_found_not_only_the_first() -> None:
    hosts = [
        host("w1", ["workers"], machine("192.0.2.11", root=False, systemd=False)),
        worker("w2", "192.0.2.12", commit=OLDER),
        head(endpoints=["w9:50052"]),
        host("lost", [], machine("192.0.2.20")),
    ]
    starts = sorted(refusal.partition(": ")[0] for refusal in plan_of(hosts).refusals)
    assert starts == ["head", "inventory", "lost", "w1", "w1"]


def test_two_heads_with_workers_of_their_own() -> None:
    heads = [head("a", "192.0.2.8", endpoints=["w1:50052"]), head("b", "192.0.2.9", endpoints=["w2:50052"])]
    plan = plan_of([worker(), worker("w2", "192.0.2.12"), *heads])
    assert plan.refusals == ()
    assert plan.hosts["w1"].clients == (IPv4Address("192.0.2.8"),)
    assert plan.hosts["w2"].clients == (IPv4Address("192.0.2.9"),)


def test_two_heads_that_both_want_all_workers_are_refused() -> None:
    refusals = plan_of([worker(), head("a", "192.0.2.8"), head("b", "192.0.2.9")]).refusals
    assert [refusal.partition(":")[0] for refusal in refusals] == ["b"]


def test_a_hypervisor_runs_nothing_of_ours_and_needs_nothing_for_it() -> None:
    old = machine("203.0.113.9", cpu_level="v1", account="/home/llama")
    plan = plan_of([*cluster(), host("box", ["hypervisors"], old, commit=OLDER)])
    assert plan.refusals == ()
    assert list(plan.hosts) == ["w1", "w2", "head"]
    assert list(plan.machines) == ["w1", "w2", "head", "box"]
    assert plan_of([*cluster(), host("box", ["hypervisors", "workers"], old)]).refusals != ()


def test_a_hypervisor_has_to_let_us_in_all_the_same() -> None:
    (refusal,) = plan_of([*cluster(), host("box", ["hypervisors"], machine(root=False))]).refusals
    assert refusal.startswith("box: we are not root there")


def test_the_plan_as_data_has_every_key() -> None:
    data = as_data(good_plan())
    assert data["hosts"]["w1"]["clients"] == ["192.0.2.10"]
    assert data["hosts"]["w1"]["compute"]["toolkit"] is None
    assert data["machines"]["w1"] == {
        "gpus": [],
        "left_out": [],
        "driver_now": None,
        "driver_state": None,
        "driver": None,
        "passthrough": [],
        "passthrough_absent": [],
        "graphics": [],
        "steps": [],
        "reboot": "",
        "must_reboot": False,
        "choices": [],
        "refusals": [],
        "runtime": "native",
    }


def test_root_needs_no_sudo() -> None:
    assert host_problems("w1", machine("192.0.2.11", sudo="sh: 1: sudo: not found"), wants_sudo=True) == []


ADDRESSES = st.lists(st.sampled_from(["192.0.2.11", "192.0.2.12", "10.0.0.7"]), max_size=2, unique=True)
ENDPOINTS = st.none() | st.lists(st.sampled_from(["0:50052", "1:50052", "192.0.2.11:50052", "2:1"]), max_size=3)


@given(
    st.lists(
        st.tuples(
            st.sets(st.sampled_from(["workers", "heads", "hypervisors", "desks"])),
            ADDRESSES,
            ENDPOINTS,
            st.sampled_from(["v1", "v2", "v3"]),
            st.sampled_from([OLDER, NEWER]),
            st.booleans(),
        ),
        max_size=4,
    )
)
def test_there_is_the_whole_plan_or_a_reason_against_it(rows: list[Any]) -> None:
    hosts = [
        host(str(number), groups, machine(*addresses, cpu_level=level, root=root), endpoints=endpoints, commit=commit)
        for number, (groups, addresses, endpoints, level, commit, root) in enumerate(rows)
    ]
    plan = plan_of(hosts)
    assert list(plan.machines) == [there.name for there in hosts]
    if not plan.refusals:
        assert list(plan.hosts) == [there.name for there in hosts if there.serves]
        used = [endpoint for there in plan.hosts.values() for endpoint in there.endpoints]
        assert len(used) == len(set(used))
        assert {there.commit for there in plan.hosts.values()} == {plan.commit}
