"""The inventory as pyinfra reads it, and a way into each of its hosts."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import testinfra  # type: ignore[import-untyped]
from testinfra.host import Host  # type: ignore[import-untyped]

from roles.base.settings import HostData

ACCEPT_NEW = "accept-new"
"""What pyinfra does with a host key that it has never seen, where the inventory does not say."""


class Unusable(Exception):
    """Nothing can be verified; the text is the sentence that the user reads."""


def read(inventory: str, overrides: Sequence[str]) -> list[HostData]:
    """Let pyinfra read an inventory.

    :param inventory: as on pyinfra's command line
    :param overrides: ``key=value``, as for pyinfra's ``--data``
    :raises Unusable: pyinfra cannot read it, or it names no host
    """
    data = [word for override in overrides for word in ("--data", override)]
    command = [sys.executable, "-m", "pyinfra", "--json", inventory, "debug-inventory", *data]
    # A process of its own: pyinfra patches the standard library for gevent, which pytest must not feel.
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Unusable(f"pyinfra cannot read {inventory}; it says:\n{done.stderr.strip()}")
    hosts = [HostData(host["name"], frozenset(host["groups"]), host["data"]) for host in json.loads(done.stdout)]
    if not hosts:
        raise Unusable(f"{inventory} names no host: is the path right?")
    return hosts


def connect(host: HostData, control: Path) -> Host:
    """A testinfra host that is reached as the inventory says: over SSH or here, as root or with sudo.

    :param control: the socket of the SSH connection that all commands share
    :raises Unusable: the inventory wants a way that is not supported
    """
    sudo = {"sudo": bool(host.data.get("_sudo")), "sudo_user": host.data.get("_sudo_user")}
    if host.name == "@local":
        return testinfra.get_host("local://", **sudo)
    if host.name.startswith("@") and not host.name.startswith("@ssh/"):
        raise Unusable(f"{host.name}: only hosts that are reached by SSH, and @local, can be verified.")
    if "ssh_password" in host.data:
        raise Unusable(f"{host.name}: verification logs in with a key: set `ssh_key` instead of `ssh_password`.")
    user = f"{host.data['ssh_user']}@" if "ssh_user" in host.data else ""
    return testinfra.get_host(
        f"ssh://{user}{_address(host)}",
        ssh_config=host.data.get("ssh_config_file"),
        ssh_identity_file=_path(host.data, "ssh_key"),
        ssh_extra_args=shlex.join(_options(host.data)),
        controlpath=str(control),
        **sudo,
    )


def disconnect(host: HostData, control: Path) -> None:
    """End the SSH connection that is shared at ``control``, if there is one."""
    if control.exists():
        command = ["ssh", "-o", f"ControlPath={control}", "-O", "exit", _address(host)]
        subprocess.run(command, capture_output=True, check=False)


def _address(host: HostData) -> str:
    return str(host.data.get("ssh_hostname", host.name.removeprefix("@ssh/")))


def _options(data: Mapping[str, Any]) -> list[str]:
    """Options of OpenSSH; it never asks anything, and the host key is checked as pyinfra checks it."""
    checking = data.get("ssh_strict_host_key_checking", ACCEPT_NEW)
    options = ["-o", "BatchMode=yes", "-o", f"StrictHostKeyChecking={checking}"]
    if "ssh_known_hosts_file" in data:
        options += ["-o", f"UserKnownHostsFile={_path(data, 'ssh_known_hosts_file')}"]
    if "ssh_key" in data:
        options += ["-o", "IdentitiesOnly=yes"]
    if "ssh_port" in data:
        options += ["-p", str(data["ssh_port"])]
    return options


def _path(data: Mapping[str, Any], key: str) -> str | None:
    return str(Path(data[key]).expanduser()) if key in data else None
