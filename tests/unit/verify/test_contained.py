"""Verification of a host whose worker runs in a container: each fault turns its test red, and no other."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from roles.base.settings import HostSettings
from roles.cluster.plan import HostPlan
from roles.cluster.state import LLAMA_SERVER, RPC_SERVER
from roles.rpc_server.settings import Settings
from tests.unit.cluster.examples import NEWER, good_plan
from tests.unit.llama_server.test_llama_server import NO_GPU
from tests.verify import reading, test_backend, test_container, test_release
from tests.verify.cluster import Cluster, Service, Subject
from tests.verify.conftest import SERVES

ANSWERS = Path(__file__).parent / "answers"

OURS = "sha256:aafb36689e37c30f0bf6d0cc872d226eaa00d8c98de31ad970ed0f1fd397fb25"
OTHERS = "sha256:57e474f8d6c5d6b0cad75eb309e5c71bdfe28aa7034ad1fa0e84e039ea8a169d"
COMMIT = "0c1e57098bba43ac29e6e3b677cdceebdd22334f"
PROGRAM = "bin/ggml-rpc-server"
DIGEST = "d" * 64
PLAN = good_plan()
WORKER = replace(PLAN.hosts["w1"], runtime="docker", devices=("/dev/dri", "/dev/kfd"))
FOLDER = f"/opt/llama.cpp/releases/{WORKER.release}"
SETTINGS: HostSettings = {Settings: Settings()}

CONTAINERS = [
    found for found in json.loads((ANSWERS / "containers.json").read_text()) if found["Name"] in ("/gpuquilt-rpc-server", "/cdi")
]
IMAGE = json.loads((ANSWERS / "image.json").read_text().replace(COMMIT, NEWER))
SERVICE = f"""ActiveState=active
SubState=running
MainPID=1277
Contained=
Program={FOLDER}/{PROGRAM}
Digest={DIGEST}
"""
HOST: Mapping[str, str] = {
    "manifest.json": json.dumps({"commit": NEWER, "image": OURS, "files": {PROGRAM: DIGEST}}),
    "systemctl show": SERVICE,
    "docker ps": json.dumps(CONTAINERS),
    "docker image inspect": json.dumps(IMAGE),
    "/proc/1277/status": (ANSWERS / "process-confined.txt").read_text(),
    f"cd /proc/1277/root{FOLDER} ": f"{DIGEST}  ./{PROGRAM}\n",
    "readlink -m": f"{FOLDER}\n",
    "journalctl": (ANSWERS / "rpc-server-new.journal").read_text(),
}
"""Part of a command → what such a host answers to it."""


@dataclass(frozen=True)
class Connection:
    answers: Mapping[str, str]
    stdout: str = ""
    rc: int = 0

    def run(self, command: str) -> Connection:
        # The longest part that fits: a question about files names the manifest, too.
        part = max((part for part in self.answers if part in command), key=len)
        return replace(self, stdout=self.answers[part])


def red(worker: Any = WORKER, settings: HostSettings = SETTINGS, **answers: str) -> dict[str, str]:
    """The tests that fail on the host with some answers changed, each with its sentence."""
    keys = {key.replace(" ", "_").strip("/"): key for key in HOST}
    host = dict(HOST) | {keys[key]: answer for key, answer in answers.items()}
    subject = Subject(worker, PLAN.machines["w1"], settings, Connection(host))
    service = Service(subject, RPC_SERVER, reading.Service(), 0)
    parameters = {
        "machine": subject,
        "docker": subject,
        "service": service,
        "worker": service,
        "contained": service,
        "cluster": Cluster(NEWER, [subject], [service]),
        "record_property": lambda name, value: None,
    }
    failures = {}
    for module in (test_backend, test_container, test_release):
        for name, test in inspect.getmembers(module, inspect.isfunction):
            wanted = inspect.signature(test).parameters.keys()
            if name.startswith("test_") and "head" not in wanted:
                try:
                    test(**{parameter: parameters[parameter] for parameter in wanted})
                except AssertionError as error:
                    failures[name] = str(error).partition("\n")[0]
    return failures


def container(**changes: Any) -> dict[str, Any]:
    """The worker's container with something changed."""
    (found,) = [found for found in CONTAINERS if found["Name"] == "/gpuquilt-rpc-server"]
    return {**found, **changes}


def test_it_is_green_where_all_is_as_planned() -> None:
    assert red() == {}


@pytest.mark.parametrize(
    ("answers", "test", "words"),
    [
        (
            {"docker_ps": json.dumps([container(Image=OTHERS)])},
            "test_container_runs_the_image_of_the_release",
            (OTHERS, OURS),
        ),
        (
            {"docker_image_inspect": json.dumps([{**IMAGE[0], "Id": OTHERS}])},
            "test_name_of_the_release_is_its_image",
            (OTHERS, OURS, f"gpuquilt/llama.cpp:{WORKER.release}"),
        ),
        (
            {"docker_image_inspect": json.dumps(IMAGE).replace(NEWER, COMMIT)},
            "test_image_is_of_the_pinned_commit",
            (COMMIT, NEWER),
        ),
        (
            {"proc/1277/status": HOST["/proc/1277/status"].replace("Root=ro", "Root=rw")},
            "test_container_is_confined",
            ("can write to its root file system",),
        ),
        (
            {"docker_ps": json.dumps([container(HostConfig={"Devices": None, "DeviceRequests": None})])},
            "test_container_has_the_planned_devices_alone",
            ("has the devices none", "should have /dev/dri, /dev/kfd"),
        ),
        (
            {"docker_ps": json.dumps([container(Mounts=[{"Source": "/etc", "RW": True}, {"Source": "/srv", "RW": False}])])},
            "test_container_can_change_nothing_of_the_host_but_the_cache",
            ("can change /etc, and needs /var/cache/llama.cpp alone",),
        ),
        (
            {"docker_ps": json.dumps([*CONTAINERS, container(Name="/left-over")])},
            "test_no_other_container_of_ours_is_there",
            ("left-over",),
        ),
        (
            {"systemctl_show": SERVICE.replace("Contained=\n", "")},
            "test_process_runs_where_it_should",
            ("runs outside of containers, and should run in a container",),
        ),
        (
            {"journalctl": (ANSWERS / "rpc-server-new.journal").read_text().replace("  CPU:", "  ROCm0:")},
            "test_worker_serves_the_planned_backend",
            ("serves ROCm0 (Intel(R) Xeon(R) Processor), and no device of the backend cpu that is planned",),
        ),
    ],
)
def test_each_fault_turns_its_test_red(answers: dict[str, str], test: str, words: tuple[str, ...]) -> None:
    failures = red(**answers)
    assert failures.keys() == {test}
    assert [word for word in ("w1", *words) if word not in failures[test]] == []


def test_a_host_without_the_image_is_one_whose_image_is_wrong() -> None:
    failures = red(docker_image_inspect="[]\n")
    assert failures.keys() == {"test_name_of_the_release_is_its_image", "test_image_is_of_the_pinned_commit"}
    assert "is no image" in failures["test_name_of_the_release_is_its_image"]


def test_a_process_in_a_container_where_none_is_planned_is_found() -> None:
    docker = ("test_container", "test_name", "test_image", "test_no_other", "test_files")
    failures = {name for name in red(replace(WORKER, runtime="native")) if not name.startswith(docker)}
    assert failures == {"test_process_runs_where_it_should"}


def test_what_a_worker_serves_is_said() -> None:
    said: list[tuple[str, object]] = []
    subject = Subject(WORKER, PLAN.machines["w1"], SETTINGS, Connection(HOST))
    service = Service(subject, RPC_SERVER, reading.Service(), 0)
    test_backend.test_worker_serves_the_planned_backend(service, lambda name, value: said.append((name, value)))
    assert said == [(SERVES, "w1 serves cpu (Intel(R) Xeon(R) Processor)")]


def test_a_worker_that_serves_more_gpus_than_are_planned_is_found() -> None:
    line = "  CPU: Intel(R) Xeon(R) Processor"
    journal = HOST["journalctl"]
    assert journal.count(line) == 1
    failures = red(replace(WORKER, gpus=1), journalctl=journal.replace(line, f"  CPU: a second one (1 MiB, 1 MiB free)\n{line}"))
    assert failures == {
        "test_worker_serves_the_planned_backend": (
            "w1: rpc-server.service serves CPU (a second one), CPU (Intel(R) Xeon(R) Processor), and 1 GPU is to compute;"
            " name those that you mean in rpc_server_devices."
        )
    }


def test_a_worker_that_serves_fewer_gpus_than_are_planned_is_found() -> None:
    assert red(replace(WORKER, gpus=2)) == {
        "test_worker_serves_the_planned_backend": (
            "w1: rpc-server.service serves CPU (Intel(R) Xeon(R) Processor), and 2 GPUs are to compute; the beginning of its"
            " journal says why. If fewer are meant, name those in rpc_server_devices."
        )
    }
    # The inventory has named them.
    assert red(replace(WORKER, gpus=2), {Settings: Settings(devices=["CPU"])}) == {}


def test_a_worker_that_lends_its_processors_beside_its_gpu_unasked_is_found() -> None:
    line = "  CPU: Intel(R) Xeon(R) Processor"
    journal = HOST["journalctl"].replace(line, f"  CUDA0: a card (1 MiB, 1 MiB free)\n{line}")
    (failure,) = red(journalctl=journal).values()
    assert "w1: rpc-server.service serves CUDA0 (a card) where cpu is planned" in failure


def test_a_head_that_cannot_use_gpus_of_its_own_is_found() -> None:
    plan = replace(WORKER, compute=replace(WORKER.compute, backend="cuda"))
    endpoint = f"{plan.address}:{plan.rpc_port}"

    def verify(plan: HostPlan, said: str = NO_GPU) -> None:
        subject = Subject(plan, PLAN.machines["w1"], SETTINGS, Connection({**HOST, "journalctl": f"loads\n{said}\nloaded\n"}))
        test_backend.test_head_can_use_gpus_of_its_own(Service(subject, LLAMA_SERVER, reading.Service(), 0))

    with pytest.raises(AssertionError, match=rf'^w1: llama-server\.service computes .* \(its journal says "{NO_GPU}"\); see to'):
        verify(plan)
    verify(plan, said="llama_server: initializing ...")
    verify(WORKER)
    # It is not to see them.
    verify(replace(plan, endpoints=(endpoint,)))
