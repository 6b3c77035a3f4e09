"""The end of `make sandbox`."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from roles.sandbox.ask import LOOK, Answer, Service, Unanswered, ask, endpoint_of, main, read_answer, report, services_of
from roles.sandbox.inputs import SOURCES

OLD, NEW = (source.commit for source in SOURCES)
WORKER = Service("gq-w1", "worker", f"{NEW[:12]}-debian13-v3-cpu-worker-1f0c2a", NEW, ("198.18.77.11:50052",))
HEAD = Service("gq-head", "head", f"{NEW[:12]}-debian13-v3-cpu-head-9ab3d1", NEW, ("198.18.77.10:8080",))


def line(unit: str, service: Service) -> str:
    return f"{unit} {service.release} {service.commit} {' '.join(service.listens)}"


def test_workers_come_before_heads() -> None:
    by_host = {"gq-head": line("llama-server", HEAD), "gq-w1": line("rpc-server", WORKER), "gq-w2": None}
    assert services_of(by_host) == [WORKER, HEAD]


def test_a_host_may_be_both() -> None:
    text = f"{line('rpc-server', WORKER)}\n{line('llama-server', HEAD)}"
    assert [service.role for service in services_of({"gq-w1": text})] == ["worker", "head"]


def test_the_endpoint_is_the_heads_address() -> None:
    assert endpoint_of([WORKER, HEAD]) == "http://198.18.77.10:8080/v1"


@pytest.mark.parametrize("services", [[], [WORKER], [Service("gq-head", "head", "r", NEW, ())]])
def test_without_a_head_that_listens_there_is_no_endpoint(services: list[Service]) -> None:
    with pytest.raises(Unanswered, match="no host runs a llama-server that listens"):
        endpoint_of(services)


def test_llama_servers_own_measurement_is_taken() -> None:
    response = {"choices": [{"text": " Paris."}], "usage": {"completion_tokens": 3}, "timings": {"predicted_per_second": 26.25}}
    assert read_answer(response, seconds=1) == Answer(" Paris.", 3, 26.25)


def test_without_it_the_time_of_the_request_is() -> None:
    assert read_answer({"choices": [{"text": ""}], "usage": {"completion_tokens": 6}}, seconds=2).speed == 3


@contextmanager
def server(status: int, body: bytes) -> Iterator[str]:
    """An HTTP server that says the same to everybody."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    http = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{http.server_port}/v1"
    finally:
        http.shutdown()
        http.server_close()


def test_it_asks_through_the_api() -> None:
    with server(200, b'{"choices": [{"text": " Paris."}], "usage": {"completion_tokens": 3}}') as endpoint:
        assert ask(endpoint).text == " Paris."


@pytest.mark.parametrize(("status", "body"), [(503, b"{}"), (200, b""), (200, b"{}"), (200, b'{"choices": []}'), (200, b"[]")])
def test_what_is_no_answer_is_said_in_one_sentence(status: int, body: bytes) -> None:
    with server(status, body) as endpoint, pytest.raises(Unanswered, match=r"did not answer .*see journalctl -u llama-server"):
        ask(endpoint)


def test_nobody_there_is_said_in_one_sentence() -> None:
    with pytest.raises(Unanswered, match="did not answer"):
        ask("http://127.0.0.1:9/v1")


def test_the_report_says_what_runs_and_how_to_go_on() -> None:
    answer = Answer(" Paris.\nIt", 3, 26.25)
    text = report("inventories/mixed.py", "sandbox-mixed", "http://198.18.77.10:8080/v1", answer, [WORKER, HEAD])
    assert "It answered:         Paris. It\n" in text
    assert "26.2 tokens/s (3 tokens)" in text
    for words in ("make sandbox-mixed-down", "deploys/rollback.py", "pytest tests/verify", f"--data commit={OLD}", HEAD.release):
        assert words in text


def test_a_sandbox_in_another_folder_is_named_to_what_comes_next(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ("inventories/sandbox.py", "sandbox", "http://198.18.77.10:8080/v1", Answer(" Paris", 3, 26.25), [WORKER, HEAD])
    monkeypatch.setenv("GPUQUILT_SANDBOX_STATE", "/srv/sandbox")
    assert "\n    . .venv/bin/activate\n    export GPUQUILT_SANDBOX_STATE=/srv/sandbox\n" in report(*arguments)
    monkeypatch.setenv("GPUQUILT_SANDBOX_STATE", "/var/lib/gpuquilt-sandbox")
    assert "export" not in report(*arguments)


def test_without_an_inventory_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "python -m roles.sandbox.ask INVENTORY" in capsys.readouterr().err


def test_a_host_is_read_as_systemd_and_the_kernel_show_it(tmp_path: Path) -> None:
    """The shell command itself, with programs that stand for a worker's."""
    programs = {
        "systemctl": 'case "$2" in rpc-server) echo 42 ;; *) echo 0 ;; esac',
        "readlink": f"echo /opt/llama.cpp/releases/{WORKER.release}/bin/ggml-rpc-server",
        "sed": f"echo {NEW}",
        "ss": """echo 'LISTEN 0 1 198.18.77.11:50052 0.0.0.0:* users:(("ggml-rpc-server",pid=42,fd=3))'""",
    }
    for name, script in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    output = subprocess.run(["sh", "-c", LOOK], env=environment, capture_output=True, text=True, check=True).stdout
    assert services_of({"gq-w1": output}) == [WORKER]
