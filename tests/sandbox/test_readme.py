"""What the README tells a person to type on a machine."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from roles.base.documentation import README
from tests.conftest import pyinfra
from tests.sandbox.conftest import INVENTORY, Machine, Sandbox, changes

REMOVED = (
    "/opt/llama.cpp",
    "/etc/gpuquilt",
    "/var/lib/gpuquilt",
    "/var/cache/gpuquilt",
    "/var/cache/llama.cpp",
    "/etc/systemd/system/*.wants/rpc-server.service",
    "/etc/systemd/system/rpc-server.service",
    "/etc/systemd/system/gpuquilt-firewall.service",
    "/etc/tmpfiles.d/gpuquilt.conf",
)


def block_of(heading: str) -> str:
    """The shell commands of a section."""
    return README.read_text().partition(f"### {heading}\n")[2].partition("```sh\n")[2].partition("```")[0]


def test_the_endpoint_is_asked_with_curl(sandbox: Sandbox) -> None:
    command = block_of("Ask it").replace("192.168.1.20", sandbox.head.address)
    assert command.startswith(f"curl http://{sandbox.head.address}:8080/")
    answer = json.loads(sandbox.head.out(command))
    assert "Paris" in answer["choices"][0]["text"]


@pytest.fixture
def a_worker_to_spare(sandbox: Sandbox) -> Iterator[Machine]:
    """The worker that builds nothing: it gets its release again within seconds."""
    yield sandbox.w2
    ended = sandbox.deploy()
    assert ended.status == 0, ended.text
    assert "Paris" in sandbox.ask()


def test_removing_leaves_nothing(a_worker_to_spare: Machine) -> None:
    command = ("deploys/remove.py", "--data", "remove=llama_cpp", "--limit", a_worker_to_spare.name)
    ended = pyinfra("-y", INVENTORY, *command)
    assert ended.status == 0, ended.text
    assert a_worker_to_spare.ssh(f"ls -d {' '.join(REMOVED)}").output == ""
    assert a_worker_to_spare.ssh("pgrep -f rpc-server").output == ""
    assert a_worker_to_spare.ssh("id llama").status != 0
    assert "gpuquilt" not in a_worker_to_spare.out("nft list tables")
    assert a_worker_to_spare.ssh("systemctl --failed --plain --no-legend").output == ""
    again = pyinfra("--json", "-y", INVENTORY, *command)
    assert again.status == 0, again.text
    assert changes(again) == {}
