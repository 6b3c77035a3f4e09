"""Machines as a user has them before gpuquilt: a sandbox beside the one that the other tests use, with nothing of ours on it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.conftest import Ended, pyinfra
from tests.sandbox.conftest import NEW, Machine, machines_of


@dataclass(frozen=True)
class Fresh:
    """The machines, by what they are called after the prefix."""

    machines: Mapping[str, Machine]
    description: Mapping[str, Any]
    """What machines.json says."""

    def inventory(self, folder: Path, hosts: Mapping[str, Mapping[str, Any]], **everywhere: Any) -> str:
        """Write an inventory, and give its path; each host is worker and head of itself, so that one is enough.

        :param hosts: name of a machine → its own settings
        :param everywhere: settings of all hosts
        """
        described = {machine["name"]: machine for machine in self.description["machines"]}
        found = []
        for name, settings in hosts.items():
            machine = described[self.machines[name].name]
            connection = {
                "ssh_hostname": machine["address"],
                "ssh_user": "root",
                "ssh_key": machine["ssh_key"],
                "ssh_known_hosts_file": machine["known_hosts"],
                "ssh_strict_host_key_checking": "yes",
                "endpoints": [f"{machine['address']}:50052"],
            }
            found.append((machine["name"], connection | dict(settings)))
        general = {
            "network": self.description["subnet"],
            "commit": NEW,
            "llama_cpp_repository": self.description["llama_cpp_repository"],
            "model_source": self.description["model_source"],
            "model_sha256": "f" * 64,
        }
        path = folder / "inventory.py"
        path.write_text(f"workers = heads = {found!r}\nall = ({found!r}, {general | everywhere!r})\n")
        return str(path)


@contextmanager
def fresh(prefix: str, subnet: str, machines: Mapping[str, str]) -> Iterator[Fresh]:
    """Make machines, and remove them.

    :param prefix: of their names, and of all else that is made for them
    :param subnet: a /24 that nothing else uses
    :param machines: name → suite, bookworm or trixie
    """
    state = Path(f"/var/lib/gpuquilt-sandbox-{prefix}")
    described = [{"name": name, "suite": suite, "octet": octet} for octet, (name, suite) in enumerate(machines.items(), 11)]
    settings = {
        "sandbox_prefix": prefix,
        "sandbox_subnet": subnet,
        "sandbox_state": str(state),
        "sandbox_machines": json.dumps(described),
    }
    data = [word for key, value in settings.items() for word in ("--data", f"{key}={value}")]
    _must(pyinfra("-y", "@local", "deploys/sandbox_down.py", *data))
    try:
        _must(pyinfra("-y", "@local", "deploys/sandbox.py", *data))
        description = json.loads((state / "machines.json").read_text())
        yield Fresh(machines_of(state), description)
    finally:
        _must(pyinfra("-y", "@local", "deploys/sandbox_down.py", *data))


def _must(ended: Ended) -> None:
    assert ended.status == 0, ended.text
