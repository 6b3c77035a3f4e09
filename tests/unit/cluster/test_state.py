"""What a host runs and what it should run, compared."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roles.cluster.banner import Device
from roles.cluster.state import (
    LLAMA_SERVER,
    RPC_SERVER,
    HostState,
    Seen,
    Service,
    Unit,
    generation,
    lost_endpoints,
    mark_of,
    marked,
    reasons,
    superfluous,
)
from tests.unit.cluster.examples import NEWER, running

UNIT = "[Unit]\nDescription=RPC\n[Service]\nExecStart=/bin/true\n"
WANTED = HostState("release-2", NEWER, "aaaa", {RPC_SERVER: Unit(marked(UNIT, "release-2"), "192.0.2.11:50052", ())})
SEEN = running(WANTED)
TEXT = st.text(st.characters(exclude_categories=["Cs"]))


def change(**changes: object) -> Seen:
    """What a host shows whose RPC server is not quite what it should be."""
    # The values of the changes are of several types, which mypy cannot tell apart by their names.
    service = replace(SEEN.services[RPC_SERVER], **changes)  # type: ignore[arg-type]
    return replace(SEEN, services={RPC_SERVER: service})


def test_a_unit_that_is_what_it_should_be_needs_nothing() -> None:
    assert reasons(RPC_SERVER, WANTED, SEEN) == []


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        (change(file_digest="f" * 64), "its unit differs"),
        (change(reload_owed=True), "systemd has not read its unit"),
        (change(enabled=False), "it does not start at boot"),
        (change(active=False), "it does not run"),
        (change(program="/opt/llama.cpp/releases/release-1/bin/rpc-server"), "the running process is another release"),
        (change(program="/opt/llama.cpp/releases/release-22/bin/rpc-server"), "the running process is another release"),
        (
            change(program="/opt/llama.cpp/releases/release-2/bin/rpc-server (deleted)"),
            "the running process is another release",
        ),
        (change(program=""), "the running process is another release"),
        (change(mark="0" * 16), "the running process was started from another unit"),
        (replace(SEEN, current="release-1"), "current is release-1"),
        (replace(SEEN, current=""), "current is nothing"),
    ],
)
def test_each_difference_is_a_reason_of_its_own(seen: Seen, why: str) -> None:
    assert reasons(RPC_SERVER, WANTED, seen) == [why]


@pytest.mark.parametrize(
    ("names", "backend", "found"),
    [
        (["CPU"], "cuda", ["it serves CPU (of some kind), and no device of the backend cuda that is planned"]),
        (["CUDA0"], "cuda", ["it serves CUDA0 (of some kind), and 2 GPUs are to compute"]),
        (["CUDA0", "CUDA1"], "cuda", []),
        # Nobody knows: the journal is gone, or the state is an older gpuquilt's.
        ([], "cuda", []),
        (["CPU"], "", []),
    ],
)
def test_a_worker_that_serves_too_little_is_restarted(names: list[str], backend: str, found: list[str]) -> None:
    """As after a reboot, at which the driver came too late."""
    wanted = replace(WANTED, units={RPC_SERVER: replace(WANTED.units[RPC_SERVER], backend=backend, gpus=2)})
    assert reasons(RPC_SERVER, wanted, change(devices=tuple(Device(name, "of some kind") for name in names))) == found


def test_a_host_where_nothing_is_installed() -> None:
    assert reasons(RPC_SERVER, WANTED, Seen()) == [
        "its unit differs",
        "it does not start at boot",
        "current is nothing",
        "it does not run",
    ]


def test_a_process_that_outlived_a_run_which_died_between_switch_and_restart_is_restarted() -> None:
    """The files are new already and the process is the old one: what the last run changed must not matter."""
    old = "/opt/llama.cpp/releases/release-1/bin/rpc-server"
    assert reasons(RPC_SERVER, WANTED, change(program=old, mark="0" * 16)) == ["the running process is another release"]


@given(TEXT, TEXT, TEXT, st.dictionaries(TEXT, st.builds(Unit, TEXT, TEXT, st.tuples(TEXT))))
def test_a_state_survives_being_written_and_read(release: str, commit: str, name: str, units: dict[str, Unit]) -> None:
    state = HostState(release, commit, name, units)
    assert "\n" not in state.to_json()
    assert HostState.from_json(state.to_json()) == state


@given(st.text() | st.from_regex(r'\{"release": .*\}', fullmatch=True))
def test_reading_a_damaged_state_never_raises(text: str) -> None:
    assert HostState.from_json(text) is None or isinstance(HostState.from_json(text), HostState)


@pytest.mark.parametrize(
    "text",
    [
        *("", "null", "[]", "7", "{}", '{"release": "r"}'),
        '{"release": "r", "commit": "c", "generation": "g", "units": 7}',
        '{"release": "r", "commit": "c", "generation": "g", "units": {"rpc-server.service": "text"}}',
    ],
)
def test_a_state_that_cannot_be_read_is_none(text: str) -> None:
    assert HostState.from_json(text) is None


def test_the_mark_tells_texts_and_releases_apart() -> None:
    assert mark_of(marked(UNIT, "release-1")) != mark_of(marked(UNIT, "release-2"))
    assert mark_of(marked(UNIT, "release-1")) != mark_of(marked(UNIT + "# more\n", "release-1"))
    assert marked(UNIT, "release-1") == marked(UNIT, "release-1")


def test_the_mark_is_an_environment_variable_of_the_service() -> None:
    lines = marked(UNIT, "release-1").splitlines()
    assert lines[lines.index("[Service]") + 1] == f"Environment=GPUQUILT_STATE={mark_of(marked(UNIT, 'release-1'))}"


def test_a_unit_without_a_mark() -> None:
    assert mark_of(UNIT) == ""


def test_a_generation_is_the_same_on_all_hosts_whatever_the_order() -> None:
    assert generation(["a", "b"]) == generation(["b", "a"])
    assert generation(["a", "b"]) != generation(["a", "c"])


def test_one_more_host_of_a_kind_that_is_there_makes_no_new_generation() -> None:
    assert generation(["a", "a", "b"]) == generation(["a", "b"])


def test_units_of_ours_that_a_host_should_not_have_any_more() -> None:
    seen = replace(SEEN, services={**SEEN.services, LLAMA_SERVER: Service(ours=True)})
    assert superfluous(WANTED, seen) == [LLAMA_SERVER]


def test_units_of_the_users_own_are_not_ours_to_take_away() -> None:
    seen = replace(SEEN, services={**SEEN.services, LLAMA_SERVER: Service(ours=False, active=True)})
    assert superfluous(WANTED, seen) == []


def test_an_endpoint_is_lost_unless_its_connection_is_established() -> None:
    seen = Seen(connections=(("ESTAB", "192.0.2.11:50052"), ("CLOSE-WAIT", "192.0.2.12:50052"), ("ESTAB", "192.0.2.99:443")))
    endpoints = ("192.0.2.11:50052", "192.0.2.12:50052", "192.0.2.13:50052")
    assert lost_endpoints(endpoints, seen) == ["192.0.2.12:50052", "192.0.2.13:50052"]
