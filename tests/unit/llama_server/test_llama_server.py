"""The head's settings and its unit, and how its start is judged."""

import json
import os
import socket
import subprocess
import time
from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from roles.base.download import Download
from roles.base.machine import Identity
from roles.cluster.options import Profile
from roles.cluster.plan import HostPlan
from roles.cluster.state import RPC_SERVER, mark_of
from roles.cluster.toolkit import ComputePlan
from roles.llama_cpp.container import Program
from roles.llama_cpp.container import devices as planned_devices
from roles.llama_cpp.flags import arguments
from roles.llama_server.completion import Completion, command, parse
from roles.llama_server.journal import diagnosis, without_gpu
from roles.llama_server.settings import Settings
from roles.llama_server.unit import WAIT_FOR_WORKERS, WAITING, options, render, unit
from tests.unit.cluster.examples import CPU

GOLDEN = Path(__file__).parent / "golden"
COMMIT = "0c1e57098bba43ac29e6e3b677cdceebdd22334f"
ENDPOINTS = ("198.18.77.11:50052", "198.18.77.12:50052")


def model(*paths: str, sha256: str = "a" * 64) -> list[Download]:
    """Files that lie in place."""
    return [Download(path, sha256, path, f"/var/lib/gpuquilt/models{path}.stamp", "model_") for path in paths]


MODEL = model("/srv/models/gemma.gguf")
PLAN = HostPlan(
    name="head",
    address=IPv4Address("198.18.77.10"),
    worker=False,
    head=True,
    rpc_port=50052,
    http_port=8080,
    commit=COMMIT,
    compute=CPU,
    profile=Profile("debian13", "v3", "cpu", ("llama-server",), {}),
    release=f"{COMMIT[:12]}-debian13-v3-cpu-head-1f0c2a",
    builder="head",
    endpoints=ENDPOINTS,
)
PROGRAM = Program("bin/llama-server")
CONTAINER = Program("bin/llama-server", "sha256:" + "ab" * 32, Identity(995, 994))


def settings(**values: Any) -> Settings:
    return Settings(**values)


@pytest.mark.parametrize(
    ("name", "values", "files"),
    [
        ("default.service", {}, MODEL),
        (
            "full.service",
            {
                "host": "127.0.0.1",
                "context_size": 131072,
                "gpu_layers": "all",
                "parallel": 2,
                "tensor_split": [3, 1.5],
                "environment": {"GGML_CUDA_DISABLE_GRAPHS": "1"},
                "extra_arguments": ["--alias", "100% of $5"],
            },
            model("/srv/models/a model-00001-of-00002.gguf", "/srv/models/a model-00002-of-00002.gguf"),
        ),
    ],
)
def test_the_unit_is_what_it_was(name: str, values: dict[str, Any], files: list[Download]) -> None:
    text = render(PLAN, settings(**values), PROGRAM, files)
    if os.environ.get("UPDATE_GOLDEN"):
        (GOLDEN / name).write_text(text)
    assert text == (GOLDEN / name).read_text()


@pytest.mark.parametrize("golden", sorted(GOLDEN.glob("*.service")), ids=lambda path: path.name)
def test_systemd_takes_the_unit(golden: Path, tmp_path: Path) -> None:
    path = tmp_path / "llama-server.service"
    path.write_text(golden.read_text())
    found = subprocess.run(["systemd-analyze", "verify", "--man=no", path], capture_output=True, text=True, check=False)
    assert not [line for line in found.stderr.splitlines() if path.name in line and "is not executable" not in line]


def test_the_unit_of_a_container_is_what_it_was() -> None:
    files = model("/srv/models/a model-00001-of-00002.gguf", "/srv/models/a model-00002-of-00002.gguf")
    text = render(replace(PLAN, runtime="docker", container_memory=4096), settings(), CONTAINER, files)
    if os.environ.get("UPDATE_GOLDEN"):
        (GOLDEN / "container.service").write_text(text)
    assert text == (GOLDEN / "container.service").read_text()


def test_what_a_head_computes_with_is_known() -> None:
    assert unit(PLAN, settings(), PROGRAM, MODEL).backend == "cpu"


SYCL = ComputePlan("sycl", None, "intel", "intel", environment={"ZES_ENABLE_SYSMAN": "1"})
LENDER = replace(PLAN, worker=True, compute=SYCL, endpoints=(*ENDPOINTS, "198.18.77.10:50052"), devices=("/dev/dri",))


@pytest.mark.parametrize("program", [PROGRAM, CONTAINER], ids=["native", "container"])
def test_gpus_that_its_own_worker_lends_are_not_the_heads_as_well(program: Program) -> None:
    text = render(LENDER, settings(), program, MODEL)
    assert "ZES_ENABLE_SYSMAN" not in text
    assert "CUDA_VISIBLE_DEVICES" not in text
    assert ("PrivateDevices=yes" in text) == (program is PROGRAM)
    assert "--device" not in text
    # It finds its workers' devices alone.
    assert unit(LENDER, settings(), program, MODEL).backend == ""
    assert planned_devices(RPC_SERVER, LENDER) == ("/dev/dri",)


@pytest.mark.parametrize("program", [PROGRAM, CONTAINER], ids=["native", "container"])
def test_cuda_hides_them_itself_since_its_library_comes_with_the_gpu(program: Program) -> None:
    cuda = replace(SYCL, backend="cuda", environment={"CUDA_DEVICE_ORDER": "PCI_BUS_ID"})
    plan = replace(LENDER, compute=cuda, devices=("nvidia.com/gpu=all",))
    text = render(plan, settings(), program, MODEL)
    assert "Environment=CUDA_VISIBLE_DEVICES=-1" in text
    assert "CUDA_DEVICE_ORDER" not in text
    assert "PrivateDevices=yes" not in text
    assert ("--device nvidia.com/gpu=all" in text) == (program is CONTAINER)
    assert unit(plan, settings(), program, MODEL).backend == ""


@pytest.mark.parametrize(
    "change", [{"endpoints": ENDPOINTS}, {"worker": True, "compute": CPU}], ids=["workers elsewhere", "processors"]
)
@pytest.mark.parametrize("program", [PROGRAM, CONTAINER], ids=["native", "container"])
def test_a_head_has_the_gpus_that_nobody_lends_it(change: dict[str, Any], program: Program) -> None:
    plan = replace(LENDER, **change)
    text = render(plan, settings(), program, MODEL)
    assert "PrivateDevices=yes" not in text
    assert "CUDA_VISIBLE_DEVICES" not in text
    assert ("--device /dev/dri" in text) == (program is CONTAINER)
    assert ("ZES_ENABLE_SYSMAN" in text) == (plan.compute is SYCL)
    assert unit(plan, settings(), program, MODEL).backend == plan.compute.backend


NO_GPU = "0.00.001.179 E ggml_cuda_init: failed to initialize CUDA: no CUDA-capable device is detected"


@pytest.mark.parametrize("line", [NO_GPU, NO_GPU.replace("CUDA", "ROCm"), "SYCL: failed to initialize: ggml_sycl_init"])
def test_what_a_head_says_of_gpus_that_it_cannot_use(line: str) -> None:
    assert without_gpu(["0.00.027.222 I srv  llama_server: initializing ...", f"{line}\n", "failed to do something else"]) == line
    assert without_gpu(["failed to do something else"]) == ""


def test_the_prompt_cache_is_off_with_workers_alone() -> None:
    alone = HostPlan(**{**vars(PLAN), "endpoints": ()})
    assert "--cache-ram" in arguments(options(PLAN, settings(), MODEL))
    assert not {"--cache-ram", "--rpc"} & set(arguments(options(alone, settings(), MODEL)))
    assert "ExecStartPre" not in render(alone, settings(), PROGRAM, MODEL)


def test_another_content_at_the_same_path_restarts_the_head() -> None:
    changed = model(MODEL[0].path, sha256="b" * 64)
    marks = [mark_of(render(PLAN, settings(), PROGRAM, found)) for found in (MODEL, MODEL, changed)]
    assert marks[0] == marks[1] != marks[2]
    second = [*MODEL, *model("/srv/models/2.gguf")], [*MODEL, *model("/srv/models/2.gguf", sha256="b" * 64)]
    assert len({render(PLAN, settings(), PROGRAM, found) for found in second}) == 2


def test_where_it_is_asked() -> None:
    def listens(**values: Any) -> str:
        return unit(PLAN, settings(**values), PROGRAM, MODEL).listens

    assert listens() == "198.18.77.10:8080"
    assert listens(listen_on_every_network=True) == "0.0.0.0:8080"
    assert listens(host="127.0.0.1") == "127.0.0.1:8080"


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"host": "0.0.0.0"}, "set llama_server_listen_on_every_network"),
        ({"host": "head"}, "IPv4"),
        ({"context_size": -1}, "greater than or equal to 0"),
        ({"gpu_layers": "many"}, "'auto' or 'all'"),
        ({"gpu_layers": -1}, "greater than or equal to 0"),
        ({"parallel": 0}, "greater than or equal to 1"),
        ({"tensor_split": [0, 0]}, "no device would get anything"),
        ({"tensor_split": [1] * 16}, "at most 15"),
        ({"tensor_split": [-1]}, "greater than or equal to 0"),
        ({"extra_arguments": ["--rpc", "a:1"]}, "setting endpoints"),
        ({"extra_arguments": ["-m", "x"]}, "setting model_source"),
        ({"extra_arguments": ["-ngl", "1"]}, "setting llama_server_gpu_layers"),
        ({"extra_arguments": ["--api-key", "secret"]}, "--api-key would shut out the question"),
        ({"extra_arguments": ["--alias", "x", "--api-key-file", "/k"]}, "--api-key-file would shut out"),
        ({"extra_arguments": ["--api-prefix", "/v"]}, "--api-prefix would shut out"),
        ({"extra_arguments": ["--ssl-key-file", "/k"]}, "--ssl-key-file would shut out"),
        ({"check_answer": "France"}, "an echo would pass"),
        ({"check_prompt": "Is it Paris"}, "an echo would pass"),
        ({"check_answer": ""}, "at least 1"),
    ],
)
def test_what_is_not_valid(values: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        settings(**values)


def test_a_key_in_the_environment_is_taken() -> None:
    assert settings(environment={"LLAMA_API_KEY": "secret"}).environment == {"LLAMA_API_KEY": "secret"}


@pytest.mark.parametrize("good", [0, 20, "auto", "all"])
def test_gpu_layers(good: object) -> None:
    assert arguments(options(PLAN, settings(gpu_layers=good), MODEL))[-2:] == ["--gpu-layers", str(good)]


def test_a_start_waits_for_all_workers_and_names_the_missing_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as there, socket.create_server(("127.0.0.1", 0)) as gone:
        good, bad = (f"127.0.0.1:{server.getsockname()[1]}" for server in (there, gone))
        gone.close()
        # bash counts full seconds of the clock: of 2 the first may be as good as over.
        script = WAITING.replace(f"+ {WAIT_FOR_WORKERS}", "+ 2")
        found = subprocess.run(["bash", "-c", script, "wait", good], capture_output=True, text=True, check=False, timeout=20)
        assert (found.returncode, found.stderr) == (0, "")
        started = time.monotonic()
        found = subprocess.run(["bash", "-c", script, "wait", good, bad], capture_output=True, text=True, check=False, timeout=20)
        assert (found.returncode, found.stderr) == (1, f"no worker answers at {bad}\n")
        assert 0.5 < time.monotonic() - started < 10


def test_the_question_survives_the_shell() -> None:
    prompt = """It's "100%" $HOME `id` \\n Ä"""
    script = command("http://127.0.0.1:1", prompt, 5)
    shown = subprocess.run(
        ["sh", "-c", 'curl() { printf "%s\\n" "$@"; }; ' + script], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert json.loads(shown[shown.index("--data-raw") + 1])["prompt"] == prompt


def test_nobody_answers() -> None:
    script = command("http://127.0.0.1:1", "x", 5)
    found = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout.splitlines()
    assert "127.0.0.1" in parse(found).problem


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (['{"choices":[{"text":" Paris.","index":0}]}', "200", "1759400000.25"], Completion(" Paris.", "", 1759400000.25)),
        (
            ['{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}', "503", "1.0"],
            Completion(problem="HTTP status 503: Loading model"),
        ),
        (["", "200", "1.0"], Completion(problem="HTTP status 200 without a body")),
        (["curl: (52) Empty reply from server", "", "000", "1.0"], Completion(problem="curl: (52) Empty reply from server")),
        (['{"choices":[]}', "200", "1.0"], Completion(problem="the response holds no text")),
        (['{"choices":[{"text":null}]}', "200", "1.0"], Completion(problem="the response holds no text")),
        (["[]", "401", "1.0"], Completion(problem="HTTP status 401: no message")),
        ([], Completion(problem="nothing came back")),
    ],
)
def test_what_came_back(lines: list[str], expected: Completion) -> None:
    assert parse(lines) == expected


@given(st.lists(st.text(max_size=60), max_size=6))
def test_nothing_that_comes_back_makes_it_fail(lines: list[str]) -> None:
    found = parse(lines)
    assert found.problem or found.time == found.time


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["E RPC server version mismatch: 4.0.1", "E Failed to connect to 198.18.77.11:50052"], "speaks RPC protocol 4.0.1"),
        (["ggml-rpc.cpp:547: Failed to connect to 198.18.77.12:50052"], "no connection to its worker 198.18.77.12:50052: "),
        (["no worker answers at 198.18.77.11:50052"], "no connection to its worker 198.18.77.11:50052: "),
        (
            ["ggml-rpc.cpp:35: Remote RPC server crashed or returned malformed response", "Aborted"],
            "one of its workers (198.18.77.11:50052, 198.18.77.12:50052) ended",
        ),
        (["error: invalid argument: --no-mmap"], 'its journal says "error: invalid argument: --no-mmap"'),
    ],
)
def test_a_worker_s_fault_names_the_worker(lines: list[str], expected: str) -> None:
    assert expected in diagnosis(lines, ENDPOINTS)
