"""A machine whose Docker has a CUDA toolkit, and no GPU at first: what is built for GPUs is built there as anywhere else."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from roles.cluster.plan import HostPlan
from roles.sandbox.inputs import MODEL
from tests.conftest import Ended, pyinfra, run
from tests.recipe import folder_of
from tests.sandbox.conftest import Machine
from tests.sandbox.fresh import Fresh, fresh
from tests.verify.cluster import Connections, look

CACHE = Path("/var/cache/gpuquilt-cuda")
COMPILED = CACHE / "ccache.tar"
"""What the compilers of the last run have made: with it the next one takes minutes, unless llama.cpp or its options change."""
RECIPE = Path(__file__).with_name("image.sh")
SECONDS_TO_MAKE = 20 * 60
SECONDS_TO_BUILD = 90 * 60
"""A build takes about 15 minutes on two cores that have nothing else to do."""
BUILD_IMAGE = "gpuquilt/cuda:12.4-build"
RUNTIME_IMAGE = "gpuquilt/cuda:12.4-runtime"
SETTINGS = {
    "runtime": "docker",
    "build_image": BUILD_IMAGE,
    "runtime_image": RUNTIME_IMAGE,
    "cuda_toolkit": "12.4",
    # Debian 13's own compiler is too new for this toolkit.
    "cmake_options": {"CMAKE_CUDA_HOST_COMPILER": "g++-13"},
    # Docker is here already, and there is nothing that a driver could drive.
    "docker_engine": "none",
    "driver": "unmanaged",
    # Of all GPUs that this computer may have: a worker that can name them itself does not fall back where there is none.
    "rpc_server_environment": {"CUDA_VISIBLE_DEVICES": "0,1,2,3,4,5,6,7"},
    "model_sha256": MODEL.sha256,
}

DOCKER = """
set -e
export DEBIAN_FRONTEND=noninteractive
mkdir -p /etc/docker /etc/cdi /srv/driver
echo '{"features": {"cdi": true}}' >/etc/docker/daemon.json
apt-get -qq update
apt-get -qq install --no-install-recommends docker.io docker-cli docker-buildx iptables >/dev/null 2>&1
"""
LIBRARY = "/srv/driver/libcuda.so.1"
LIBRARY_INSIDE = "/usr/lib/x86_64-linux-gnu/libcuda.so.1"
SPECIFICATION = "/etc/cdi/nvidia.yaml"


COMPILED_IMAGE = "gpuquilt/ccache:1"
CACHE_OF_BUILDS = "--mount=type=cache,id=gpuquilt-ccache,target=/ccache"
"""As in templates/dockerfiles/common.j2."""
FILL = f"""
FROM {BUILD_IMAGE}
RUN --mount=type=bind,from={COMPILED_IMAGE},target=/kept {CACHE_OF_BUILDS} cp -a /kept/. /ccache/
"""
EMPTY = f"""
FROM {BUILD_IMAGE} AS copied
ARG WHEN
RUN {CACHE_OF_BUILDS} cp -a /ccache /copied
FROM scratch
COPY --from=copied /copied /
"""


@dataclass(frozen=True)
class Card:
    """A GPU that the inventory names and nobody has.

    :param chip: as `lspci` names it
    :param code: its machine code, after ``sm_``
    :param generation: as the catalog names it
    """

    chip: str
    code: str
    generation: str


@dataclass(frozen=True)
class Gpu:
    """A GPU of this computer.

    :param library: the driver's, for programs
    :param devices: path → major and minor number
    """

    library: Path
    devices: Mapping[str, tuple[int, int]]


def need_gpu(card: Card) -> Gpu:
    """What this computer has that runs the card's code; passes over the test where there is nothing."""
    try:
        found = set(run("nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader").output.split())
    except FileNotFoundError:
        found = set()
    if {capability.replace(".", "") for capability in found} != {card.code}:
        has = f"those here are {', '.join(sorted(found))}" if found else "there is none here, or no driver"
        pytest.skip(f"the worker needs NVIDIA GPUs of sm_{card.code} and no others: {has}")
    library = re.search(r"libcuda\.so\.1 \(.*x86-64.*\) => (\S+)", run("ldconfig", "-p").output)
    assert library, "the driver is loaded, and ldconfig knows no libcuda.so.1 of it: install the driver's library for CUDA"
    devices = {str(path): path.stat().st_rdev for path in Path("/dev").glob("nvidia*") if path.is_char_device()}
    return Gpu(Path(library[1]), {path: (os.major(number), os.minor(number)) for path, number in devices.items()})


@dataclass(frozen=True)
class Lab:
    """The machine as a lab with one card.

    :param inventory: its path
    :param plan: what the machine is to be
    """

    card: Card
    machine: Machine
    inventory: str
    plan: HostPlan

    def deploy(self) -> Ended:
        """Run the deploy that makes the machine an endpoint."""
        return pyinfra("-y", self.inventory, "deploys/cluster.py", timeout=SECONDS_TO_BUILD)

    def inside(self, image: str, command: str) -> str:
        """What a shell command prints in a container without a network or a device."""
        return self.machine.out(
            f"docker run --rm --pull never --network none --entrypoint sh {image} -c '{command}'", timeout=300
        )

    @contextmanager
    def driver(self, gpu: Gpu | None = None) -> Iterator[None]:
        """Containers that ask for GPUs get NVIDIA's library meanwhile, with this GPU or with none."""
        if gpu:
            send(self.machine, gpu.library, f"cat >{LIBRARY}")
            for name, (major, minor) in gpu.devices.items():
                self.machine.out(f"test -e {name} || mknod {name} c {major} {minor}")
        mount = {"hostPath": LIBRARY, "containerPath": LIBRARY_INSIDE, "options": ["ro", "nosuid", "nodev", "bind"]}
        edits = {"mounts": [mount], "deviceNodes": [{"path": name} for name in gpu.devices] if gpu else []}
        # What NVIDIA's container toolkit writes.
        specification = {
            "cdiVersion": "0.5.0",
            "kind": "nvidia.com/gpu",
            "devices": [{"name": "all", "containerEdits": edits}],
        }
        self.machine.out(f"echo '{json.dumps(specification)}' >{SPECIFICATION}")
        try:
            yield
        finally:
            self.machine.out(f"rm -f {SPECIFICATION}")


@pytest.fixture(scope="session")
def there() -> Iterator[Fresh]:
    """A machine with Docker and the images to build from."""
    images = folder_of(RECIPE, CACHE, SECONDS_TO_MAKE)
    with fresh("gqn", "198.18.87.0/24", {"cuda": "trixie"}) as found:
        machine = found.machines["cuda"]
        machine.out(DOCKER, timeout=300)
        send(machine, images / "build.tar", f"docker import - {BUILD_IMAGE}")
        send(machine, images / "runtime.tar", f"docker import - {RUNTIME_IMAGE}")
        send(machine, images / "libcuda.so.1", f"cat >{LIBRARY}")
        with compiler_cache(machine):
            yield found


@contextmanager
def compiler_cache(machine: Machine) -> Iterator[None]:
    """The builds of a machine find what those of the last machine have compiled."""
    if COMPILED.exists():
        send(machine, COMPILED, f"docker import - {COMPILED_IMAGE}")
        machine.out(f"echo '{FILL}' | docker build --quiet -", timeout=300)
    try:
        yield
    finally:
        partial = COMPILED.with_suffix(".partial")
        # Docker knows a step by its variables: another time is another step, which it has to do.
        build = f"docker build --quiet --build-arg WHEN={time.time()} --output type=tar,dest=- -"
        with partial.open("wb") as content:
            subprocess.run(ssh(machine, f"echo '{EMPTY}' | {build}"), stdout=content, check=True, timeout=600)
        partial.rename(COMPILED)


def lab(there: Fresh, folder: Path, card: Card) -> Lab:
    """The machine as a lab with one card, and the plan for it."""
    inventory = there.inventory(folder, {"cuda": {"gpus": [card.chip]}}, **SETTINGS)
    connections = Connections(folder)
    try:
        (subject,) = look(inventory, [], connections).machines
    finally:
        connections.close()
    return Lab(card, there.machines["cuda"], inventory, subject.plan)


def send(machine: Machine, file: Path, command: str) -> None:
    """Run a command that reads a file of this computer."""
    with file.open("rb") as content:
        subprocess.run(ssh(machine, command), stdin=content, check=True, timeout=600)


def ssh(machine: Machine, command: str) -> list[str]:
    """The words that run a command there, which may read or write more than text."""
    options = ["-o", "BatchMode=yes", "-o", f"UserKnownHostsFile={machine.known_hosts}", "-i", machine.key]
    return ["ssh", *options, f"root@{machine.address}", command]
