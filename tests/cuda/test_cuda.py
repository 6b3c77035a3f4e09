"""Images for CUDA, built for real where there is no GPU: what is in them, and that nobody takes a worker without its GPU for one.

The tests of one card follow each other: the first run finds no driver, the second one that drives nothing, and the last one
the GPU of this computer, if it is such a card.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from roles.llama_cpp.image import partial_tag, tag
from tests.conftest import Ended, run
from tests.cuda.conftest import BUILD_IMAGE, Card, Lab, lab, need_gpu
from tests.sandbox.conftest import NEW, Cluster
from tests.sandbox.fresh import Fresh

CARDS = [Card("GP102", "61", "Pascal"), Card("AD104", "89", "Ada Lovelace")]
PROGRAMS = ["ggml-rpc-server", "llama-bench", "llama-fit-params", "llama-server"]
WORKER = "rpc-server.service"
HEAD = "llama-server.service"


@dataclass(frozen=True)
class Run:
    """A run of the deploy, and the lab that it was for."""

    lab: Lab
    ended: Ended

    def said(self, word: str) -> list[str]:
        """The sentences about the machine with this word, each once."""
        name = self.lab.machine.name
        found = re.findall(rf"{name}: ([^\n]*{re.escape(word)}[^\n]*)", self.ended.text)
        return list(dict.fromkeys(found))


@pytest.fixture(scope="module", params=CARDS, ids=lambda card: card.generation)
def built(request: pytest.FixtureRequest, there: Fresh, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """An image is built where no driver is."""
    found = lab(there, tmp_path_factory.mktemp("lab"), request.param)
    return Run(found, found.deploy())


@pytest.fixture(scope="module")
def fallen_back(built: Run) -> Iterator[Run]:
    """The worker is started where the driver finds no GPU."""
    with built.lab.driver():
        yield Run(built.lab, built.lab.deploy())
        stop(built.lab)


def stop(lab: Lab) -> None:
    """End what runs: a worker looks for its GPU at its start, and the driver's library must not change under it."""
    lab.machine.ssh(f"systemctl stop {HEAD} {WORKER}")


def verified(lab: Lab) -> Ended:
    """What verification says of the devices that the worker serves."""
    return run(sys.executable, "-m", "pytest", "tests/verify/test_backend.py", "--inventory", lab.inventory)


def test_the_gate_misses_the_driver_and_nothing_else(built: Run) -> None:
    assert built.ended.status != 0, built.ended.text
    assert sorted(built.said("is not used")) == [
        f"bin/{program} does not find its library libcuda.so.1, which belongs to NVIDIA's driver (deploys/prepare.py installs"
        " that, and a reboot may be owed; a container gets it with the device nvidia.com/gpu=all), so"
        f" {built.lab.plan.release} is not used; what was in use still is."
        for program in PROGRAMS
    ], built.ended.text


def test_it_holds_code_for_its_card_alone(built: Run) -> None:
    image = partial_tag(built.lab.plan.release)
    looked = built.lab.machine.out(
        f"docker run --rm --pull never --entrypoint cat {image} /opt/llama.cpp/current/lib/libggml-cuda.so"
        f" | docker run --rm --interactive --pull never {BUILD_IMAGE}"
        " sh -c 'cat >/tmp/library; cuobjdump --list-elf /tmp/library; cuobjdump --list-ptx /tmp/library 2>&1'",
        timeout=300,
    )
    assert set(re.findall(r"\.sm_(\w+)\.cubin", looked)) == {built.lab.card.code}
    assert re.findall(r"\S+\.ptx\b", looked) == [], "what the driver would have to compile"


def test_it_finds_all_libraries_but_the_drivers(built: Run) -> None:
    said = built.lab.inside(partial_tag(built.lab.plan.release), "cd /opt/llama.cpp/current && ldd bin/* lib/*")
    assert set(re.findall(r"(\S+) => not found", said)) == {"libcuda.so.1"}
    assert set(re.findall(r"(libcudart|libcublas)\.so\.12 => /", said)) == {"libcudart", "libcublas"}


def test_it_is_labelled_and_has_what_its_role_needs_alone(built: Run) -> None:
    plan, card = built.lab.plan, built.lab.card
    image = partial_tag(plan.release)
    config = json.loads(built.lab.machine.out(f"docker image inspect --format '{{{{json .Config}}}}' {image}"))
    labels = config["Labels"]
    assert labels["org.opencontainers.image.revision"] == NEW
    assert labels["gpuquilt.release"] == plan.release
    assert labels["gpuquilt.generation"] == card.generation
    assert labels["gpuquilt.architectures"] == f"{card.code}-real"
    assert labels["gpuquilt.toolkit"] == "12.4"
    assert "CMAKE_CUDA_HOST_COMPILER=g++-13" in labels["gpuquilt.options"].split()
    assert built.lab.inside(image, "id -u") == config["User"].partition(":")[0] != "0"
    assert built.lab.inside(image, "ls /opt/llama.cpp/current/bin").split() == PROGRAMS
    assert built.lab.inside(image, "command -v nvcc g++ cmake git || true") == ""


def test_a_worker_that_serves_the_processors_is_a_failure(fallen_back: Run) -> None:
    assert fallen_back.ended.status != 0, fallen_back.ended.text
    said = (
        "and no device of the backend cuda that is planned: its journal says"
        ' "ggml_cuda_init: failed to initialize CUDA: no CUDA-capable device is detected"; see to the driver there, correct'
        " `backend`, or name in rpc_server_devices those that are meant."
    )
    assert said in fallen_back.ended.text
    assert f"{WORKER} serves CPU (" in fallen_back.ended.text
    machine, release = fallen_back.lab.machine, fallen_back.lab.plan.release
    assert machine.out(f"docker image inspect --format '{{{{.Id}}}}' {tag(release)}").startswith("sha256:"), "the gate lets it in"
    assert machine.ssh(f"systemctl is-active {WORKER}").output.strip() != "active"


def test_verification_finds_it_too(fallen_back: Run) -> None:
    machine = fallen_back.lab.machine
    machine.out(f"systemctl start {WORKER}")
    journal = f"journalctl --output=cat _SYSTEMD_INVOCATION_ID={machine.shows(WORKER, 'InvocationID')['InvocationID']}"
    end = time.monotonic() + 60
    while "transport " not in (said := machine.out(journal)):
        assert time.monotonic() < end, said
        time.sleep(1)
    ended = verified(fallen_back.lab)
    assert ended.status == 1, ended.text
    assert f"{machine.name}: {WORKER} serves CPU (" in ended.text
    assert "and no device of the backend cuda that is planned" in ended.text


def test_the_gpu_of_this_computer_answers_a_prompt(built: Run, fallen_back: Run) -> None:
    gpu = need_gpu(built.lab.card)
    stop(fallen_back.lab)
    with built.lab.driver(gpu):
        ended = built.lab.deploy()
        assert ended.status == 0, ended.text
        assert "Paris" in Cluster(built.lab.inventory, (built.lab.machine,), built.lab.machine, ended).ask()
        ended = verified(built.lab)
        assert ended.status == 0, ended.text
        assert f"{built.lab.machine.name} serves cuda (" in ended.text
