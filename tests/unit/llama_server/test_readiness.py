"""What a start of the services is taken for, by what their host shows; the host is a script of answers."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from roles.base import watch
from roles.base.remote import Answer, HostError
from roles.cluster.state import Unit
from roles.llama_server import Settings, answers, readiness
from roles.rpc_server import listening
from roles.rpc_server import readiness as worker_readiness
from tests.unit.llama_server.test_llama_server import ENDPOINTS, NO_GPU

HEAD = Unit("", "198.18.77.10:8080", ENDPOINTS)
WORKER = Unit("", "198.18.77.11:50052", ("198.18.77.11:50052",), "cuda")
ID = "0f3f4b6c9d1e4a58b0a7a1f1c2d3e4f5"
PARIS = json.dumps({"choices": [{"text": " Paris."}]})


def sight(*sockets: str, state: str = "active running", restarts: int = 0, job: str = "") -> list[str]:
    active, sub = state.split()
    pid = "912" if active == "active" else "0"
    lines = [f"ActiveState={active}", f"SubState={sub}", f"Job={job}", f"MainPID={pid}", f"NRestarts={restarts}"]
    return [*lines, f"InvocationID={ID}", *(f"socket {socket}" for socket in sockets)]


UP = ["LISTEN 198.18.77.10:8080 0.0.0.0:*", *(f"ESTAB 198.18.77.10:4123{n} {peer}" for n, peer in enumerate(ENDPOINTS))]


class Host:
    """Answers to each kind of command from a list of its own, the last one again and again."""

    def __init__(self, **answers: list[list[str]]) -> None:
        self.answers = answers
        self.asked: list[str] = []

    def run(self, _state: Any, _host: Any, command: str, timeout: int = 60) -> Answer:
        kinds = {"systemctl show": "sights", "/health": "health", "/v1/completions": "completions", "journalctl": "journal"}
        kind = next(kind for word, kind in kinds.items() if word in command)
        self.asked.append(kind)
        left = self.answers.get(kind, [[]])
        return Answer(True, left.pop(0) if len(left) > 1 else left[0], [])


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> Callable[[Host], Host]:
    def use(host: Host) -> Host:
        for module in (watch, readiness):
            monkeypatch.setattr(module, "run", host.run)
        for module in (watch, readiness, worker_readiness):
            monkeypatch.setattr(module, "say", lambda *_: None)
        monkeypatch.setattr(watch, "PAUSE", 0.001)
        monkeypatch.setattr(worker_readiness, "TIMEOUT", 5)
        return host

    return use


Use = Callable[[Host], Host]


def start(start_timeout: int = 5) -> float:
    return answers(None, None, HEAD, Settings(start_timeout=start_timeout))  # type: ignore[arg-type]


def test_it_answers_when_the_model_is_loaded_and_the_text_is_right(on: Use) -> None:
    host = on(
        Host(
            sights=[sight(state="activating start-pre"), sight(), sight(*UP[:1]), sight(*UP)],
            health=[["503"], ["200"]],
            completions=[[PARIS, "200", "1759400000.5"]],
        )
    )
    assert start() == 1759400000.5
    assert host.asked.count("health") == 2 and host.asked.count("completions") == 1


def test_the_process_that_is_to_go_does_not_count(on: Use) -> None:
    host = on(
        Host(
            sights=[sight(*UP, job="77"), sight(*UP, job="77"), sight(*UP)],
            health=[["200"]],
            completions=[[PARIS, "200", "1.0"]],
        )
    )
    start()
    assert host.asked[:4] == ["sights", "sights", "sights", "health"]


def test_a_process_that_dies_is_not_waited_for(on: Use) -> None:
    on(Host(sights=[sight(), sight(restarts=1)], journal=[["ggml-rpc.cpp:547: Failed to connect to 198.18.77.12:50052"]]))
    with pytest.raises(HostError, match=r"restarted by systemd: no connection to its worker 198\.18\.77\.12:50052: "):
        start()


def test_a_model_that_never_loads(on: Use) -> None:
    on(Host(sights=[sight(*UP)], health=[["503"]], journal=[["loading model tensors"]]))
    with pytest.raises(HostError, match=r'not ready after 1 s: it loads the model; its journal says "loading model tensors"\.$'):
        start(start_timeout=1)


def test_a_wrong_answer(on: Use) -> None:
    nonsense = json.dumps({"choices": [{"text": "===="}]})
    on(Host(sights=[sight(*UP)], health=[["200"]], completions=[[nonsense, "200", "1.0"]]))
    with pytest.raises(HostError, match="with '====', without 'Paris'"):
        start()


@pytest.mark.parametrize("backend", ["cuda", "", "cpu"])
def test_a_head_whose_own_gpu_cannot_be_used(on: Use, monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    """Where its worker lends it the GPUs, it is not to see them."""
    monkeypatch.setattr(sys.modules[__name__], "HEAD", replace(HEAD, backend=backend))
    on(Host(sights=[sight(*UP)], health=[["200"]], completions=[[PARIS, "200", "1.0"]], journal=[["loads", NO_GPU, "loaded"]]))
    if backend != "cuda":
        assert start() == 1.0
        return
    expected = (
        "llama-server.service computes without the GPUs of its own that are planned for it (its journal says"
        f' "{NO_GPU}"): see to the driver there, or correct `backend`.'
    )
    with pytest.raises(HostError) as caught:
        start()
    assert str(caught.value) == expected


def test_a_head_that_dies_of_the_question(on: Use) -> None:
    on(
        Host(
            sights=[sight(*UP), sight(restarts=1)],
            health=[["200"]],
            completions=[["curl: (52) Empty reply from server", "", "000", "1.0"]],
            journal=[["ggml-rpc.cpp:35: Remote RPC server crashed or returned malformed response"]],
        )
    )
    with pytest.raises(HostError, match=r"restarted by systemd: one of its workers \(198"):
        start()


def test_a_head_that_came_up_without_a_worker(on: Use) -> None:
    on(Host(sights=[sight(*UP[:2])], health=[["200"]], completions=[[PARIS, "200", "1.0"]]))
    with pytest.raises(HostError, match=r"answers without its worker 198\.18\.77\.12:50052"):
        start()


def test_a_head_that_listens_elsewhere(on: Use) -> None:
    on(Host(sights=[sight("LISTEN 0.0.0.0:8080 0.0.0.0:*")], health=[["200"]], completions=[[PARIS, "200", "1.0"]]))
    with pytest.raises(HostError, match=r"listens on 0\.0\.0\.0:8080 instead of 198\.18\.77\.10:8080"):
        start()


LISTENS = sight("LISTEN 198.18.77.11:50052 0.0.0.0:*")


def serving(*devices: str) -> list[str]:
    """The journal of a worker that has started."""
    lines = [f"  {device}: a {device.rstrip('0123456789')} device (8192 MiB, 8000 MiB free)" for device in devices]
    warning = "WARNING: Host ('198.18.77.11') is != '127.0.0.1'"
    return ["Started rpc-server.service.", "Starting RPC server v7.0.0", "Devices:", *lines, "  transport      : TCP", warning]


def start_worker(unit: Unit) -> None:
    listening(None, None, unit)  # type: ignore[arg-type]


def test_a_worker_that_listens_and_says_what_it_serves(on: Use) -> None:
    host = on(Host(sights=[sight(), LISTENS], journal=[[], serving("CUDA0", "CPU")]))
    start_worker(WORKER)
    assert host.asked == ["sights", "sights", "journal", "sights", "journal"]


def test_of_a_state_that_does_not_say_what_computes_listening_is_enough(on: Use) -> None:
    host = on(Host(sights=[LISTENS]))
    start_worker(replace(WORKER, backend=""))
    assert host.asked == ["sights"]


def test_a_worker_that_serves_its_processors_in_silence(on: Use) -> None:
    reason = "ggml_cuda_init: failed to initialize CUDA: no CUDA-capable device is detected"
    # Out of a container the two streams come in any order.
    for journal in ([reason, *serving("CPU")], [*serving("CPU"), reason]):
        on(Host(sights=[LISTENS], journal=[journal]))
        with pytest.raises(HostError) as caught:
            start_worker(WORKER)
        assert str(caught.value) == (
            "rpc-server.service serves CPU (a CPU device), and no device of the backend cuda that is planned: its journal says"
            f' "{reason}"; see to the driver there, correct `backend`, or name in rpc_server_devices those that are meant.'
        )


def test_a_worker_that_serves_fewer_than_are_planned(on: Use) -> None:
    reason = "ggml_cuda_init: failed to set up one of them"
    two = replace(WORKER, gpus=2)
    on(Host(sights=[LISTENS], journal=[[reason, *serving("CUDA0")]]))
    with pytest.raises(HostError) as caught:
        start_worker(two)
    assert str(caught.value) == (
        "rpc-server.service serves CUDA0 (a CUDA device), and 2 GPUs are to compute: its journal says"
        f' "{reason}"; see to the driver there, correct `backend`, or name in rpc_server_devices those that are meant.'
    )
    on(Host(sights=[LISTENS], journal=[serving("CUDA0", "CUDA1")]))
    start_worker(two)
    # The inventory names them.
    on(Host(sights=[LISTENS], journal=[serving("CUDA0")]))
    start_worker(WORKER)


def test_a_list_that_is_not_complete_yet_is_no_failure(on: Use) -> None:
    """Of a container the journal may come later than the socket."""
    both = serving("CUDA0", "CUDA1")
    one = both[: both.index("  CUDA1: a CUDA device (8192 MiB, 8000 MiB free)")]
    on(Host(sights=[LISTENS], journal=[one, both]))
    start_worker(replace(WORKER, gpus=2))


@pytest.mark.parametrize("cause", [[], ["ggml_cuda_init: failed to initialize CUDA: no CUDA-capable device is detected"]])
def test_a_worker_that_ends_because_a_card_is_missing(on: Use, cause: list[str]) -> None:
    ended = ["error: unknown device: CUDA1", "available devices:", "  CUDA0: a card (1 MiB, 1 MiB free)", "No devices found"]
    again = ["rpc-server.service: Scheduled restart job, restart counter is at 1.", *cause, *ended]
    on(Host(sights=[sight(), sight(state="activating auto-restart", restarts=1)], journal=[[*cause, *ended, *again]]))
    with pytest.raises(HostError) as caught:
        start_worker(replace(WORKER, gpus=2))
    said = '" and "'.join([*cause, "error: unknown device: CUDA1"])
    assert str(caught.value) == (
        f'rpc-server.service ended and was restarted by systemd: its journal says "{said}"; see to the driver there, correct'
        " `backend`, or name in rpc_server_devices those that are meant."
    )


def test_a_worker_that_serves_more_than_is_planned(on: Use) -> None:
    """llama.cpp lends the processor's own GPU as well, whose memory is the processor's."""
    both = serving("Vulkan0", "Vulkan1")
    on(Host(sights=[LISTENS], journal=[both]))
    with pytest.raises(HostError) as caught:
        start_worker(replace(WORKER, backend="vulkan", gpus=1))
    assert str(caught.value) == (
        "rpc-server.service serves Vulkan0 (a Vulkan device), Vulkan1 (a Vulkan device), and 1 GPU is to compute: see by"
        " deploys/preflight.py which are meant, and name those in rpc_server_devices."
    )
    # Two are planned, or nobody knows, or the inventory has named them.
    for gpus in (0, 2):
        on(Host(sights=[LISTENS], journal=[both]))
        start_worker(replace(WORKER, backend="vulkan", gpus=gpus))
    on(Host(sights=[LISTENS], journal=[serving("ROCm0", "ROCm1")]))
    with pytest.raises(HostError, match=r"and hide the others with HIP_VISIBLE_DEVICES in rpc_server_environment\.$"):
        start_worker(replace(WORKER, backend="hip", gpus=1))


def test_a_worker_that_does_not_say_why(on: Use) -> None:
    on(Host(sights=[LISTENS], journal=[serving("Vulkan0", "Vulkan1")]))
    with pytest.raises(HostError, match=r"serves Vulkan0 .*, Vulkan1 .*, and no .* cuda .*: its journal gives no reason; see"):
        start_worker(WORKER)


def test_a_worker_that_never_says_what_it_serves(on: Use, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_readiness, "TIMEOUT", 0.05)
    on(Host(sights=[LISTENS], journal=[["Started rpc-server.service."]]))
    with pytest.raises(HostError, match="it listens, and its journal does not name its devices yet"):
        start_worker(WORKER)


@pytest.mark.parametrize("addresses", [["0.0.0.0:50052"], ["198.18.77.11:50052", "198.18.77.11:1"]])
def test_a_worker_that_listens_elsewhere(on: Use, addresses: list[str]) -> None:
    on(Host(sights=[sight(*(f"LISTEN {address} 0.0.0.0:*" for address in addresses))]))
    with pytest.raises(HostError, match=r"instead of 198\.18\.77\.11:50052"):
        start_worker(WORKER)


def test_a_worker_that_ends_with_0(on: Use) -> None:
    on(Host(sights=[sight(), sight(state="activating auto-restart", restarts=1)], journal=[["error: unknown argument: -m"]]))
    with pytest.raises(HostError, match="restarted by systemd: error: unknown argument: -m"):
        start_worker(WORKER)
