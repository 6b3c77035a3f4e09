"""What the sandbox consists of: every name, address and path, derived from the settings in one place."""

from __future__ import annotations

import json
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from typing import Any

from roles.sandbox.inputs import MIRROR, MODEL
from roles.sandbox.settings import Settings

INSIDE = "/srv/inputs"
"""Where a machine sees the inputs."""
BASE_INSIDE = "/srv/base"
"""Where a machine sees the root file system that it stands on, without what it has made of it."""
COMPILER_CACHE_INSIDE = "/srv/ccache"
"""Where a machine sees what all machines have compiled."""


@dataclass(frozen=True)
class Machine:
    """One machine, and where it is on this computer."""

    name: str
    suite: str
    address: IPv4Address
    folder: str

    @property
    def interface(self) -> str:
        """The host's end of its cable, as systemd-nspawn names it."""
        return f"vb-{self.name}"

    @property
    def root(self) -> str:
        """Mount point of its root file system."""
        return f"{self.folder}/root"

    @property
    def docker(self) -> str:
        """What it has in /var/lib/docker."""
        return f"{self.folder}/docker"


@dataclass(frozen=True)
class Layout:
    """The whole sandbox."""

    prefix: str
    subnet: IPv4Network
    state: str
    cache: str
    machines: tuple[Machine, ...]

    @property
    def bridge(self) -> str:
        return f"{self.prefix}-br0"

    @property
    def table(self) -> str:
        """Name of our nftables table, of the family ip."""
        return f"gpuquilt_sandbox_{self.prefix}"

    @property
    def gateway(self) -> IPv4Address:
        """This computer's address on the bridge."""
        return self.subnet[1]

    @property
    def ssh(self) -> str:
        """Folder of the sandbox's keys."""
        return f"{self.state}/ssh"

    @property
    def key(self) -> str:
        return f"{self.ssh}/id_ed25519"

    @property
    def known_hosts(self) -> str:
        return f"{self.ssh}/known_hosts"

    @property
    def inputs(self) -> str:
        return f"{self.cache}/inputs"

    @property
    def compiler_cache(self) -> str:
        """What a compiler has made in one machine, for the next one that compiles the same."""
        return f"{self.cache}/ccache"

    @property
    def suites(self) -> tuple[str, ...]:
        return tuple(sorted({machine.suite for machine in self.machines}))

    def base(self, suite: str) -> str:
        """The root file system that all machines of a suite share, read-only."""
        return f"{self.cache}/base/{suite}"

    def host_key(self, machine: Machine) -> str:
        return f"{self.ssh}/{machine.name}_ed25519"


def lay_out(settings: Settings) -> Layout:
    """Settings → layout."""
    machines = tuple(
        Machine(
            name=f"{settings.sandbox_prefix}-{machine.name}",
            suite=machine.suite,
            address=settings.sandbox_subnet[machine.octet],
            folder=f"{settings.sandbox_state}/machines/{settings.sandbox_prefix}-{machine.name}",
        )
        for machine in settings.sandbox_machines
    )
    return Layout(
        prefix=settings.sandbox_prefix,
        subnet=settings.sandbox_subnet,
        state=settings.sandbox_state,
        cache=settings.sandbox_cache,
        machines=machines,
    )


def describe(layout: Layout) -> dict[str, Any]:
    """What an inventory needs to know; the inputs are named as the machines see them."""
    return {
        "prefix": layout.prefix,
        "subnet": str(layout.subnet),
        "bridge": layout.bridge,
        "llama_cpp_repository": f"file://{INSIDE}/{MIRROR}",
        "model_source": f"file://{INSIDE}/{MODEL.file}",
        "machines": [
            {
                "name": machine.name,
                "address": str(machine.address),
                "suite": machine.suite,
                "ssh_key": layout.key,
                "known_hosts": layout.known_hosts,
            }
            for machine in layout.machines
        ],
    }


def description_text(layout: Layout) -> str:
    """The content of ``machines.json``."""
    return json.dumps(describe(layout), indent=2) + "\n"
