"""Workers of three kinds under one head: natively on two Debians, one of them with Vulkan, and in a container.

The tests follow one another: the order is that of a user's weeks with such a cluster.
"""

from __future__ import annotations

import json
import shlex
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import requests

from tests.conftest import ROOT, Ended, pyinfra, run
from tests.sandbox.conftest import NEW, OLD, Cluster, Machine, changes, machines_of, need_root
from tests.sandbox.verification import Verification

INVENTORY = "inventories/mixed.py"
STATE = Path("/var/lib/gpuquilt-sandbox-mixed")
CONTAINER = "gpuquilt-rpc-server"
REPOSITORY = "gpuquilt/llama.cpp"
RPC_PORT = 50052


@dataclass(frozen=True)
class Mixed(Cluster):
    """What `make sandbox-mixed` makes."""

    @property
    def cpu(self) -> Machine:
        return self.workers[0]

    @property
    def vulkan(self) -> Machine:
        return self.workers[1]

    @property
    def docker(self) -> Machine:
        return self.workers[2]

    def done(self, *arguments: str, deploy: str = "deploys/cluster.py") -> Ended:
        """Run a deploy, which must succeed."""
        ended = self.deploy("--json", *arguments, deploy=deploy)
        assert ended.status == 0, ended.text
        return ended

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

    def reboot(self) -> None:
        """The machine with the container boots anew: it ends, and the sandbox starts the machine that does not run."""
        self.docker.ssh("systemctl reboot")
        deadline = time.monotonic() + 60
        while run("pgrep", "--full", f"^systemd-nspawn .*--machine={self.docker.name} ").status == 0:
            assert time.monotonic() < deadline, f"{self.docker.name} does not end"
            time.sleep(0.5)
        there = json.loads((STATE / "machines.json").read_text())
        machines = [
            {
                "name": machine["name"].removeprefix(f"{there['prefix']}-"),
                "suite": machine["suite"],
                "octet": int(machine["address"].rpartition(".")[2]),
            }
            for machine in there["machines"]
        ]
        settings = {"prefix": there["prefix"], "subnet": there["subnet"], "state": STATE, "machines": json.dumps(machines)}
        data = [word for key, value in settings.items() for word in ("--data", f"sandbox_{key}={value}")]
        started = pyinfra("-y", "@local", "deploys/sandbox.py", *data)
        assert started.status == 0, started.text

    def releases(self) -> dict[str, str]:
        """Host → its releases, as files that were written once, and its images."""
        look = "stat --format='%n %i %z' /opt/llama.cpp/releases/*"
        images = f"docker image ls --no-trunc --format '{{{{.Tag}}}} {{{{.ID}}}}' {REPOSITORY} | sort"
        found = {machine.name: machine.out(look) for machine in self.machines}
        found[self.docker.name] += "\n" + self.docker.out(images)
        return found

    def services(self) -> dict[str, dict[str, str]]:
        """And the container with its start."""
        found = super().services()
        found[self.docker.name]["container"] = self.docker.out(
            f"docker inspect --format '{{{{.Id}}}} {{{{.Image}}}} {{{{.State.Pid}}}} {{{{.State.StartedAt}}}}' {CONTAINER}"
        )
        return found

    def builds(self) -> dict[str, int]:
        """Host → how many builds were ever begun there."""
        count = "journalctl _PID=1 --output=cat | grep -c '^Started gpuquilt-build-' || true"
        return {machine.name: int(machine.out(count)) for machine in self.machines}


@pytest.fixture(scope="module")
def mixed() -> Iterator[Mixed]:
    """Bring it up as a user would, with what was left of earlier runs."""
    need_root()
    made = run("make", "sandbox-mixed", timeout=40 * 60)
    assert made.status == 0, made.text
    machines = machines_of(STATE)
    yield Mixed(INVENTORY, (machines["cpu"], machines["vulkan"], machines["docker"]), machines["head"], made)


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
    assert changes(mixed.done()) == {}
    assert (mixed.services(), mixed.releases(), mixed.builds()) == before


def with_option(cluster: Mixed, folder: Path, option: str, value: str) -> Mixed:
    """The cluster by an inventory that gives one more CMake option to the host with the container."""
    copy = folder / "inventories"
    shutil.copytree(ROOT / "inventories", copy)
    path = copy / Path(cluster.inventory).name
    old = '_host("docker", '
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, f"{old}cmake_options={{{option!r}: {value!r}}}, "))
    return replace(cluster, inventory=str(path))


def test_one_changed_option_builds_that_image_alone(mixed: Mixed, tmp_path: Path) -> None:
    """And it has an effect: without llamafile's matrix multiplication, that is in no library of the image."""

    def multiplies() -> bool:
        release = mixed.docker.out("readlink /opt/llama.cpp/current")
        return mixed.docker.ssh(f"docker exec {CONTAINER} grep -rqF llamafile_sgemm {release}/lib").status == 0

    # The release before, of an earlier run of these tests, would be built already, or be cleaned away.
    others = "find /opt/llama.cpp/releases -mindepth 1 -maxdepth 1 ! -path $(readlink /opt/llama.cpp/current)"
    for machine in mixed.machines:
        machine.out(f"{others} -exec rm -r {{}} +")
    builds, releases, container = mixed.builds(), mixed.releases(), mixed.services()[mixed.docker.name]["container"]
    assert multiplies()
    with_option(mixed, tmp_path, "GGML_LLAMAFILE", "OFF").done()
    assert mixed.builds() == builds | {mixed.docker.name: builds[mixed.docker.name] + 1}
    now = mixed.releases()
    assert now[mixed.docker.name] != releases[mixed.docker.name]
    assert {**now, mixed.docker.name: ""} == {**releases, mixed.docker.name: ""}
    assert not multiplies()
    assert "Paris" in mixed.ask()
    # Back again: that image is still there.
    mixed.done()
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
    mixed.done()
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
    deadline = time.monotonic() + 60
    # A container whose client is gone answers until systemd has removed it.
    while mixed.docker.shows("rpc-server", "InvocationID") == before:
        assert time.monotonic() < deadline, mixed.docker.out("journalctl -u rpc-server -n 30 --no-pager")
        time.sleep(0.2)
    mixed.comes_back()
    assert mixed.docker.out("docker ps --all --format '{{.Names}}'") == CONTAINER


REFRESH = "nvidia-cdi-refresh.service"
STUB = """\
[Unit]
Description=As NVIDIA's container toolkit 1.19.0 orders it
After=multi-user.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/true
[Install]
WantedBy=multi-user.target
"""


@pytest.mark.long
def test_the_cluster_comes_back_by_itself_after_a_boot(mixed: Mixed) -> None:
    """Also where NVIDIA's service is ordered after all others: github.com/NVIDIA/nvidia-container-toolkit/issues/1735."""
    file = f"/etc/systemd/system/{REFRESH}"
    mixed.docker.out(f"printf %s {shlex.quote(STUB)} >{file} && systemctl enable --quiet {REFRESH}")
    boot = mixed.docker.out("cat /proc/sys/kernel/random/boot_id")
    try:
        # Of one at a boot the journal of such a machine says nothing.
        assert "cycle" not in mixed.docker.ssh("systemd-analyze verify --man=no multi-user.target").text
        mixed.reboot()
        assert mixed.docker.out("cat /proc/sys/kernel/random/boot_id") != boot
        mixed.comes_back()
        assert mixed.docker.out("docker ps --all --format '{{.Names}}'") == CONTAINER
        mixed.docker.ssh("systemctl is-system-running --wait")
        assert mixed.docker.shows(REFRESH, "ActiveState") == {"ActiveState": "active"}
    finally:
        mixed.docker.out(f"systemctl disable --quiet {REFRESH}; rm {file}; systemctl daemon-reload")


def test_a_worker_that_fell_back_to_its_processors_is_found_by_the_next_run(mixed: Mixed) -> None:
    """The endpoint answers meanwhile; once there is something to compute with again, a run is all it takes."""
    drivers = "/usr/share/vulkan/icd.d"
    mixed.vulkan.out(f"mv {drivers} {drivers}.away && systemctl restart rpc-server")
    try:
        mixed.comes_back()
        ended = mixed.deploy()
        assert ended.status != 0, ended.text
        assert f"{mixed.vulkan.name}: rpc-server.service serves CPU (" in ended.text
        assert "and no device of the backend vulkan that is planned" in ended.text
        assert "Every host is back on the release before, which answers." in ended.text
        assert "Paris" in mixed.ask()
    finally:
        mixed.vulkan.out(f"mv {drivers}.away {drivers}")
    mixed.done()
    assert "Paris" in mixed.ask()
    assert changes(mixed.done()) == {}


def test_verification_passes_again(verify: Verification) -> None:
    """What was broken is whole, or the tests above have proved less than they say."""
    assert verify().failures == {}


@pytest.mark.long
def test_it_goes_to_the_older_commit_and_back_and_is_rolled_back(mixed: Mixed, verify: Verification) -> None:
    """From one commit to the other the RPC server has another name and another protocol."""
    mixed.done("--data", f"commit={OLD}")
    assert mixed.commits() == {OLD[:12]}
    assert verify("--data", f"commit={OLD}").failures == {}
    builds = mixed.builds()
    for commit in (NEW, OLD):
        mixed.done(deploy="deploys/rollback.py")
        assert mixed.commits() == {commit[:12]}
        assert "Paris" in mixed.ask()
    mixed.done()
    assert mixed.commits() == {NEW[:12]}
    assert verify().failures == {}
    assert mixed.builds() == builds
