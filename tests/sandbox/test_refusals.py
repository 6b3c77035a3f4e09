"""What stops a run on real machines: one clear sentence, exit code not 0, and every service and release as it was.

What can be known from the inventory alone is refused without machines: tests/unit/test_deploys.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import Ended, pyinfra
from tests.sandbox.conftest import INVENTORY, ROOT, Machine, Sandbox, inventory_as, person

UNKNOWN = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(autouse=True)
def nothing_is_touched(sandbox: Sandbox) -> Iterator[None]:
    """Whatever is refused leaves services, releases and models as they were."""
    before = (sandbox.services(), [contents(machine) for machine in sandbox.machines])
    yield
    assert (sandbox.services(), [contents(machine) for machine in sandbox.machines]) == before


def contents(machine: Machine) -> str:
    return machine.out("ls -l /opt/llama.cpp/ /opt/llama.cpp/releases /srv/models /etc/systemd/system 2>/dev/null || true")


def refused(ended: Ended, *faults: str) -> None:
    """The run has ended with one line for each fault, and no traceback.

    :param faults: what each line says, words that stand in it in this order, with `…` between them
    """
    assert ended.status != 0
    for fault in faults:
        pattern = ".*".join(re.escape(words.strip()) for words in fault.split("…"))
        assert len([line for line in ended.text.splitlines() if re.search(pattern, line)]) == 1, ended.text
    assert "Traceback" not in ended.text


def test_a_commit_that_the_repository_does_not_have(sandbox: Sandbox) -> None:
    ended = sandbox.deploy("--data", f"commit={UNKNOWN}")
    for builder in ("gq-w1", "gq-head"):
        refused(ended, f"{builder}: file:///srv/inputs/llama.cpp.git has no commit {UNKNOWN}")


def test_all_faults_of_the_inventory_at_once(sandbox: Sandbox) -> None:
    ended = sandbox.deploy(
        *("--data", "commit=0c1e570", "--data", "rpc_prot=50052", "--data", "http_port=eighty"),
        *("--data", 'endpoints=[":50052", "gq-w1:0", "[::1]:50052"]', "--data", "_ignore_errors=true"),
    )
    refused(
        ended,
        "gq-w1, gq-w2, gq-head: commit = '0c1e570' is not valid",
        "gq-w1, gq-w2, gq-head: there is no setting 'rpc_prot': did you mean 'rpc_port'?",
        "gq-w1, gq-w2, gq-head: http_port = 'eighty' is not valid",
        "gq-w1, gq-w2, gq-head: endpoints = ':50052' is not valid (it has no host)",
        "gq-w1, gq-w2, gq-head: endpoints = 'gq-w1:0' is not valid (it has no port",
        "gq-w1, gq-w2, gq-head: endpoints = '[::1]:50052' is not valid (it is IPv6",
        "gq-w1, gq-w2, gq-head: _ignore_errors would hold for every step of the run",
    )


def test_a_model_with_a_wrong_hash(sandbox: Sandbox) -> None:
    wrong = "0" * 64
    refused(sandbox.deploy("--data", f'model_sha256="{wrong}"'), f"gq-head: … and model_sha256 is {wrong}")


@contextmanager
def little_space(machine: Machine, folder: str) -> Iterator[None]:
    """The folder has 16 MiB."""
    machine.out(f"mkdir -p {folder} && mount -t tmpfs -o size=16m tmpfs {folder}")
    try:
        yield
    finally:
        machine.out(f"umount {folder}")


def test_too_little_disk_for_the_model(sandbox: Sandbox) -> None:
    with little_space(sandbox.head, "/srv/small"):
        refused(sandbox.deploy("--data", "model_folder=/srv/small"), "gq-head: /srv/small … MiB free, and the download needs")


def test_too_little_disk_for_a_build(sandbox: Sandbox) -> None:
    with little_space(sandbox.w1, "/srv/small"):
        sandbox.w1.out("mount --bind /srv/small /opt")
        try:
            refused(sandbox.deploy(), "gq-w1: /opt has 16 MiB free")
        finally:
            sandbox.w1.out("umount /opt")


def test_a_sudo_that_wants_a_password_is_said_at_once(sandbox: Sandbox, tmp_path: Path) -> None:
    with person(sandbox.w2, "ALL") as user:
        ended = pyinfra("-y", inventory_as(tmp_path, "gq-w2", user), "deploys/cluster.py", timeout=30)
    refused(ended, "gq-w2: sudo does not work without a password")


def test_from_another_folder(sandbox: Sandbox, tmp_path: Path) -> None:
    ended = pyinfra("-y", str(ROOT / INVENTORY), str(ROOT / "deploys/cluster.py"), cwd=tmp_path)
    refused(ended, "config.py was not read … change into gpuquilt's folder")


@pytest.mark.parametrize("deploy", ["deploys/cluster.py", "deploys/rollback.py"])
def test_limit_to_one_group(sandbox: Sandbox, deploy: str) -> None:
    refused(sandbox.deploy("--limit", "heads", deploy=deploy), "--limit and --exclude would switch a part of the cluster")


def test_a_flag_that_the_build_does_not_know(sandbox: Sandbox) -> None:
    ended = sandbox.deploy("--data", 'llama_server_extra_arguments=["--no-mmap-please"]')
    refused(ended, "gq-head: llama-server of commit … knows no flag --no-mmap-please: take it out of")
