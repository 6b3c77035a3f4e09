"""Workers of three kinds under one head: natively on two Debians, one of them with Vulkan, and in a container.

The tests follow one another: the order is that of a user's weeks with such a cluster.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import requests

from tests.conftest import ROOT, Ended, pyinfra, run
from tests.sandbox.conftest import NEW, OLD, Machine, changes, need_root
from tests.sandbox.verification import Verification

INVENTORY = "inventories/mixed.py"
STATE = Path("/var/lib/gpuquilt-sandbox-mixed")
CONTAINER = "gpuquilt-rpc-server"
REPOSITORY = "gpuquilt/llama.cpp"
RPC_PORT = 50052


@dataclass(frozen=True)
class Mixed:
    """The machines, and the cluster on them."""

    cpu: Machine
    vulkan: Machine
    docker: Machine
    head: Machine
    made: Ended
    """What `make sandbox-mixed` said."""

    @property
    def workers(self) -> tuple[Machine, Machine, Machine]:
        return (self.cpu, self.vulkan, self.docker)

    @property
    def machines(self) -> tuple[Machine, ...]:
        return (*self.workers, self.head)

    def deploy(self, *arguments: str, inventory: str = INVENTORY, deploy: str = "deploys/cluster.py") -> Ended:
        """Run a deploy without a question; it must succeed."""
        ended = pyinfra("-y", "--json", inventory, deploy, *arguments, timeout=2400)
        assert ended.status == 0, ended.text
        return ended

    def ask(self) -> str:
        """The model's completion."""
        body = {"prompt": "The capital city of France is called", "max_tokens": 8, "temperature": 0}
        answer = requests.post(f"http://{self.head.address}:8080/v1/completions", json=body, timeout=30)
        answer.raise_for_status()
        return str(answer.json()["choices"][0]["text"])

    def comes_back(self, seconds: float = 90) -> None:
        """The endpoint answers again, by itself; it is asked until it does."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                assert "Paris" in self.ask()
                return
            except requests.RequestException:
                assert time.monotonic() < deadline, self.head.out("journalctl -u llama-server -n 30 --no-pager")
                time.sleep(0.5)

    def peers(self) -> set[str]:
        """What the head is connected to."""
        return set(self.head.out("ss -Htnp state established | grep llama-server | awk '{print $4}'").split())

    def releases(self) -> dict[str, str]:
        """Host → its releases, as files that were written once, and its images."""
        look = "stat --format='%n %i %z' /opt/llama.cpp/releases/*"
        images = f"docker image ls --no-trunc --format '{{{{.Tag}}}} {{{{.ID}}}}' {REPOSITORY} | sort"
        found = {machine.name: machine.out(look) for machine in self.machines}
        found[self.docker.name] += "\n" + self.docker.out(images)
        return found

    def services(self) -> dict[str, dict[str, str]]:
        """What must stay as it is when nothing is to be done: processes, containers, their starts, and systemd's reloads."""
        found = {}
        for machine in self.machines:
            unit = "llama-server" if machine is self.head else "rpc-server"
            found[machine.name] = machine.shows(unit, "MainPID", "ExecMainStartTimestampMonotonic", "NRestarts")
            found[machine.name]["reloads"] = machine.out("journalctl -b _PID=1 --output=cat | grep -ci 'reload.*request' || true")
        found[self.docker.name]["container"] = self.docker.out(
            f"docker inspect --format '{{{{.Id}}}} {{{{.Image}}}} {{{{.State.Pid}}}} {{{{.State.StartedAt}}}}' {CONTAINER}"
        )
        return found

    def builds(self) -> dict[str, int]:
        """Host → how many builds were ever begun there."""
        count = "journalctl _PID=1 --output=cat | grep -c '^Started gpuquilt-build-' || true"
        return {machine.name: int(machine.out(count)) for machine in self.machines}

    def commits(self) -> set[str]:
        """The commits, 12 digits, of what all hosts use."""
        return {Path(machine.out("readlink /opt/llama.cpp/current")).name.partition("-")[0] for machine in self.machines}


@pytest.fixture(scope="module")
def mixed() -> Iterator[Mixed]:
    """Bring it up as a user would, with what was left of earlier runs."""
    need_root()
    made = run("make", "sandbox-mixed", timeout=40 * 60)
    assert made.status == 0, made.text
    described = json.loads((STATE / "machines.json").read_text())["machines"]
    machines = {
        there["name"].rpartition("-")[2]: Machine(there["name"], there["address"], there["ssh_key"], there["known_hosts"])
        for there in described
    }
    yield Mixed(**machines, made=made)


@pytest.fixture
def verify(tmp_path: Path) -> Verification:
    return Verification(INVENTORY, tmp_path / "report.xml")


def test_one_answer_comes_through_three_kinds_of_workers(mixed: Mixed) -> None:
    assert "Paris" in mixed.made.output
    assert "make sandbox-mixed-down" in mixed.made.output
    assert "Paris" in mixed.ask()
    assert {f"{worker.address}:{RPC_PORT}" for worker in mixed.workers} <= mixed.peers()


def test_the_container_was_built_where_it_runs_and_nowhere_else(mixed: Mixed) -> None:
    release = Path(mixed.docker.out("readlink /opt/llama.cpp/current")).name
    folder = f"/opt/llama.cpp/releases/{release}"
    assert set(mixed.docker.out(f"ls {folder}").split()) == {"Dockerfile", "manifest.json"}
    assert mixed.docker.out(f"grep ^FROM {folder}/Dockerfile").split()[1] == "gpuquilt/debian:13"
    manifest = json.loads(mixed.docker.out(f"cat {folder}/manifest.json"))
    assert manifest["builder"] == mixed.docker.name
    assert manifest["image"] == mixed.docker.out(f"docker inspect --format '{{{{.Image}}}}' {CONTAINER}")
    # What is not needed on a host is not put there: neither Docker on the others, nor a compiler on this one.
    assert [machine.name for machine in mixed.machines if machine.ssh("command -v docker").status == 0] == [mixed.docker.name]
    assert mixed.docker.ssh("command -v cmake c++").status != 0


def test_verification_passes_and_names_what_each_worker_computes_with(mixed: Mixed, verify: Verification) -> None:
    verdict = verify()
    assert verdict.failures == {}
    served = [line for line in verdict.text.splitlines() if " serves " in line]
    beginnings = [
        f"{mixed.cpu.name} serves cpu (",
        f"{mixed.docker.name} serves cpu (",
        f"{mixed.vulkan.name} serves vulkan (llvmpipe",
    ]
    assert [line.startswith(beginning) for line, beginning in zip(served, beginnings, strict=True)] == [True] * 3, served


def test_a_second_run_changes_nothing(mixed: Mixed) -> None:
    before = mixed.services(), mixed.releases(), mixed.builds()
    assert changes(mixed.deploy()) == {}
    assert (mixed.services(), mixed.releases(), mixed.builds()) == before


def inventory_with(folder: Path, old: str, new: str) -> str:
    """The inventory with something changed in it."""
    copy = folder / "inventories"
    shutil.copytree(ROOT / "inventories", copy)
    text = (copy / "mixed.py").read_text()
    assert text.count(old) == 1
    (copy / "mixed.py").write_text(text.replace(old, new))
    return str(copy / "mixed.py")


def test_one_changed_option_builds_that_image_alone(mixed: Mixed, tmp_path: Path) -> None:
    """And it has an effect: without llamafile's matrix multiplication, that is in no library of the image."""

    def multiplies() -> bool:
        release = mixed.docker.out("readlink /opt/llama.cpp/current")
        return mixed.docker.ssh(f"docker exec {CONTAINER} grep -rqF llamafile_sgemm {release}/lib").status == 0

    # What an earlier run of this test has built is the release before.
    others = "find /opt/llama.cpp/releases -mindepth 1 -maxdepth 1 ! -path $(readlink /opt/llama.cpp/current)"
    mixed.docker.out(f"{others} -exec rm -r {{}} +")
    builds, releases, container = mixed.builds(), mixed.releases(), mixed.services()[mixed.docker.name]["container"]
    assert multiplies()
    changed = inventory_with(tmp_path, '_host("docker", ', '_host("docker", cmake_options={"GGML_LLAMAFILE": "OFF"}, ')
    mixed.deploy(inventory=changed)
    assert mixed.builds() == builds | {mixed.docker.name: builds[mixed.docker.name] + 1}
    now = mixed.releases()
    assert now[mixed.docker.name] != releases[mixed.docker.name]
    assert {**now, mixed.docker.name: ""} == {**releases, mixed.docker.name: ""}
    assert not multiplies()
    assert "Paris" in mixed.ask()
    # Back again: that image is still there.
    mixed.deploy()
    assert mixed.builds() == builds | {mixed.docker.name: builds[mixed.docker.name] + 1}
    assert multiplies()
    assert mixed.services()[mixed.docker.name]["container"].split()[1] == container.split()[1]
    assert "Paris" in mixed.ask()


FOREIGN = f"FROM gpuquilt/debian:13\\nLABEL org.opencontainers.image.revision={OLD}\\n"


def test_an_image_of_another_commit_under_the_same_name_is_found_and_put_right(mixed: Mixed, verify: Verification) -> None:
    name = f"{REPOSITORY}:{Path(mixed.docker.out('readlink /opt/llama.cpp/current')).name}"
    mixed.docker.out(f"mkdir -p foreign && printf '{FOREIGN}' >foreign/Dockerfile && docker build --quiet --tag {name} foreign")
    failures = verify().failures
    assert failures.keys() == {
        f"test_name_of_the_release_is_its_image[{mixed.docker.name}]",
        f"test_image_is_of_the_pinned_commit[{mixed.docker.name}]",
    }
    assert all(mixed.docker.name in sentence for sentence in failures.values())
    assert OLD in failures[f"test_image_is_of_the_pinned_commit[{mixed.docker.name}]"]
    others = {host: builds for host, builds in mixed.builds().items() if host != mixed.docker.name}
    mixed.deploy()
    assert {host: builds for host, builds in mixed.builds().items() if host != mixed.docker.name} == others
    assert verify().failures == {}


@pytest.mark.parametrize(
    "fault",
    [
        "kill -9 $(systemctl show rpc-server --property=MainPID --value)",
        f"docker kill {CONTAINER}",
        "systemctl restart docker",
    ],
    ids=["client", "container", "daemon"],
)
def test_the_cluster_comes_back_by_itself(fault: str, mixed: Mixed) -> None:
    """A worker that is gone takes the head with it when that is asked the next time; both are started again."""
    before = mixed.docker.shows("rpc-server", "InvocationID")
    mixed.docker.out(fault)
    mixed.comes_back()
    assert mixed.docker.out("docker ps --all --format '{{.Names}}'") == CONTAINER
    assert mixed.docker.shows("rpc-server", "InvocationID") != before


def test_verification_passes_again(verify: Verification) -> None:
    """What was broken is whole, or the tests above have proved less than they say."""
    assert verify().failures == {}


@pytest.mark.long
def test_it_goes_to_the_older_commit_and_back_and_is_rolled_back(mixed: Mixed, verify: Verification) -> None:
    """From one commit to the other the RPC server has another name and another protocol."""
    mixed.deploy("--data", f"commit={OLD}")
    assert mixed.commits() == {OLD[:12]}
    assert verify("--data", f"commit={OLD}").failures == {}
    builds = mixed.builds()
    for commit in (NEW, OLD):
        mixed.deploy(deploy="deploys/rollback.py")
        assert mixed.commits() == {commit[:12]}
        assert "Paris" in mixed.ask()
    mixed.deploy()
    assert mixed.commits() == {NEW[:12]}
    assert verify().failures == {}
    assert mixed.builds() == builds
