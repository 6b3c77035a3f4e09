"""Reading what systemd, ss and the journal say of a service."""

from hypothesis import given
from hypothesis import strategies as st

from roles.base.sight import Sight, command, parse, reasons, telling
from roles.base.units import main_pid

RUNNING = """\
ActiveState=active
SubState=running
MainPID=912
NRestarts=0
InvocationID=0f3f4b6c9d1e4a58b0a7a1f1c2d3e4f5
socket LISTEN 198.18.77.10:8080 0.0.0.0:*
socket ESTAB 198.18.77.10:41234 198.18.77.11:50052
socket CLOSE-WAIT 198.18.77.10:41236 198.18.77.12:50052
"""

ABORT = """\
Started llama-server.service - llama.cpp server.
/build/ggml/src/ggml-rpc/ggml-rpc.cpp:35: Remote RPC server crashed or returned malformed response
/opt/llama.cpp/current/lib/libggml-base.so.0(+0x1a2b3) [0x7f1d5c01a2b3]
#0  0x00007f1d5bcee3b4 in wait4 () from /lib/x86_64-linux-gnu/libc.so.6
llama-server.service: Main process exited, code=dumped, status=6/ABRT
llama-server.service: Failed with result 'core-dump'.
llama-server.service: Consumed 2.1s CPU time.
llama-server.service: Scheduled restart job, restart counter is at 1.
"""


def test_a_service_that_runs() -> None:
    assert parse(RUNNING.splitlines()) == Sight(
        state="active running",
        pid=912,
        restarts=0,
        invocation="0f3f4b6c9d1e4a58b0a7a1f1c2d3e4f5",
        listening=frozenset({"198.18.77.10:8080"}),
        peers=frozenset({"198.18.77.11:50052"}),
    )


def test_a_service_that_is_not_there() -> None:
    lines = ["ActiveState=inactive", "SubState=dead", "MainPID=0", "NRestarts=0", "InvocationID="]
    assert parse(lines) == Sight(state="inactive dead")


def test_a_restart_that_is_still_to_come() -> None:
    assert parse(["ActiveState=active", "SubState=running", "Job=1234", "MainPID=912"]).job
    assert not parse(["ActiveState=active", "SubState=running", "Job=", "MainPID=912"]).job


@given(st.lists(st.text(max_size=60), max_size=10))
def test_no_output_makes_it_fail(lines: list[str]) -> None:
    parse(lines)
    assert telling(lines)


def test_it_is_asked_for_the_process_and_not_for_dockers_client() -> None:
    asked = command("rpc-server.service")
    assert asked.index(main_pid("rpc-server.service")) < asked.index('echo "MainPID=$pid"') < asked.index("ss -Htanp")


def test_no_reason_is_none() -> None:
    assert reasons(["one", "x.service: Failed with result 'signal'."]) == []


def test_the_reason_stands_before_what_systemd_says_of_it() -> None:
    assert telling(ABORT.splitlines()).endswith("Remote RPC server crashed or returned malformed response")


def test_a_worker_that_cannot_bind_says_so_and_ends_with_0() -> None:
    lines = [
        "Starting RPC server v7.0.0",
        "Failed to create server socket",
        "rpc-server.service: Scheduled restart job, restart counter is at 2.",
    ]
    assert telling(lines) == "Failed to create server socket"


def test_without_a_reason_the_last_words_count() -> None:
    assert telling(["one", "two", "x.service: Scheduled restart job, restart counter is at 2."]) == "two"
    assert telling(["x.service: Failed with result 'signal'."]) == "x.service: Failed with result 'signal'."
    assert telling([]) == "its journal says nothing"
