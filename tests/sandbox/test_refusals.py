"""What stops a run on real machines: one clear sentence, exit code not 0, and every service and release as it was.

What can be known from the inventory alone is refused without machines: tests/unit/test_deploys.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import Ended, pyinfra
from tests.sandbox.conftest import INVENTORY, ROOT, Machine, Sandbox

UNKNOWN = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(autouse=True)
def nothing_is_touched(sandbox: Sandbox) -> Iterator[None]:
    """Whatever is refused leaves services, releases and models as they were."""
    before = (sandbox.services(), [contents(machine) for machine in sandbox.machines])
    yield
    assert (sandbox.services(), [contents(machine) for machine in sandbox.machines]) == before


def contents(machine: Machine) -> str:
    return machine.out("ls -l /opt/llama.cpp/ /opt/llama.cpp/releases /srv/models /etc/systemd/system 2>/dev/null || true")


def refused(ended: Ended, *sentences: str) -> None:
    assert ended.status != 0
    for sentence in sentences:
        assert sentence in ended.text
    assert "Traceback" not in ended.text


def test_a_commit_that_the_repository_does_not_have(sandbox: Sandbox) -> None:
    refused(sandbox.deploy("--data", f"commit={UNKNOWN}"), UNKNOWN, "file:///srv/inputs/llama.cpp.git")


def test_a_short_commit_and_a_bad_endpoint_and_a_misspelled_setting_all_at_once(sandbox: Sandbox) -> None:
    ended = sandbox.deploy("--data", "commit=0c1e570", "--data", "rpc_prot=50052", "--data", "http_port=eighty")
    refused(ended, "commit = '0c1e570' is not valid", "did you mean 'rpc_port'?", "http_port = 'eighty' is not valid")
    refused(sandbox.deploy("--data", 'endpoints=[":50052", "gq-w1:0", "[::1]:50052"]'), "':50052'", "'gq-w1:0'", "'[::1]:50052'")


def test_a_model_with_a_wrong_hash(sandbox: Sandbox) -> None:
    wrong = "0" * 64
    refused(sandbox.deploy("--data", f'model_sha256="{wrong}"'), "gq-head", wrong)


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
        refused(sandbox.deploy("--data", "model_folder=/srv/small"), "gq-head", "/srv/small", "MiB")


def test_too_little_disk_for_a_build(sandbox: Sandbox) -> None:
    with little_space(sandbox.w1, "/srv/small"):
        sandbox.w1.out("mount --bind /srv/small /opt")
        try:
            refused(sandbox.deploy(), "gq-w1: /opt has 16 MiB free")
        finally:
            sandbox.w1.out("umount /opt")


@contextmanager
def person(machine: Machine, sudo: str) -> Iterator[str]:
    """A user who logs in with the sandbox's key, and may use sudo as the rule says."""
    machine.out(
        "useradd --create-home --shell /bin/bash keeper && mkdir -p ~keeper/.ssh"
        " && cp /root/.ssh/authorized_keys ~keeper/.ssh/ && chown -R keeper: ~keeper/.ssh"
        f" && echo 'keeper ALL=(ALL) {sudo}' >/etc/sudoers.d/keeper"
    )
    try:
        yield "keeper"
    finally:
        machine.out("rm -f /etc/sudoers.d/keeper; userdel --remove keeper 2>/dev/null; true")


def inventory_as(folder: Path, name: str, user: str) -> str:
    """The sandbox's inventory with one host that is reached as a user with sudo."""
    text = (ROOT / INVENTORY).read_text()
    path = folder / "sandbox.py"
    path.write_text(
        text
        + "\nfor _group in (workers, heads):\n"
        + f"    _group[:] = [(n, d | {{'ssh_user': {user!r}, '_sudo': True}}) if n == {name!r} else (n, d) for n, d in _group]\n"
        + "all = ([*workers, *heads], all[1])\n"
    )
    return str(path)


def test_a_sudo_that_wants_a_password_is_said_at_once(sandbox: Sandbox, tmp_path: Path) -> None:
    with person(sandbox.w2, "ALL") as user:
        ended = pyinfra("-y", inventory_as(tmp_path, "gq-w2", user), "deploys/cluster.py", timeout=30)
    refused(ended, "gq-w2: sudo does not work without a password")


def test_a_sudo_without_a_password_is_as_good_as_root(sandbox: Sandbox, tmp_path: Path) -> None:
    with person(sandbox.w2, "NOPASSWD: ALL") as user:
        ended = pyinfra("-y", inventory_as(tmp_path, "gq-w2", user), "deploys/cluster.py")
    assert ended.status == 0, ended.text


def test_from_another_folder(sandbox: Sandbox, tmp_path: Path) -> None:
    ended = pyinfra("-y", str(ROOT / INVENTORY), str(ROOT / "deploys/cluster.py"), cwd=tmp_path)
    refused(ended, "config.py was not read", "change into gpuquilt's folder")


@pytest.mark.parametrize("deploy", ["deploys/cluster.py", "deploys/rollback.py"])
def test_limit_to_one_group(sandbox: Sandbox, deploy: str) -> None:
    refused(sandbox.deploy("--limit", "heads", deploy=deploy), "--limit and --exclude would switch a part of the cluster")


def test_a_flag_that_the_build_does_not_know(sandbox: Sandbox) -> None:
    ended = sandbox.deploy("--data", 'llama_server_extra_arguments=["--no-mmap-please"]')
    refused(ended, "gq-head", "--no-mmap-please")
