"""A host that is reached in another way than by SSH as root, with real work to do: release, firewall and service are gone."""

from __future__ import annotations

import json
from pathlib import Path

from tests.conftest import pyinfra
from tests.sandbox.conftest import NEW, Machine, Sandbox, changes, inventory_as, person


def bare(machine: Machine) -> None:
    """Take from a worker what a run of the deploy has to bring back."""
    machine.out("systemctl disable --now rpc-server gpuquilt-firewall; nft delete table inet gpuquilt; true")
    machine.out("rm -f /etc/systemd/system/rpc-server.service /etc/gpuquilt/firewall.nft; systemctl daemon-reload")
    machine.out(f"rm -rf /opt/llama.cpp/releases/{NEW[:12]}-* /opt/llama.cpp/archives/{NEW[:12]}-*")


def test_a_sudo_without_a_password_is_as_good_as_root(sandbox: Sandbox, tmp_path: Path) -> None:
    sandbox.at(NEW)
    with person(sandbox.w2, "NOPASSWD: ALL") as user:
        bare(sandbox.w2)
        inventory = inventory_as(tmp_path, sandbox.w2.name, user)
        ended = pyinfra("-y", inventory, "deploys/cluster.py")
        assert ended.status == 0, ended.text
        again = pyinfra("--json", "-y", inventory, "deploys/cluster.py")
        assert changes(again) == {}, json.loads(again.output)
    assert sandbox.commits() == {NEW[:12]}
    assert "Paris" in sandbox.ask()
