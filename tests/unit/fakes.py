"""Fake hosts: pyinfra itself runs, in a process of its own, and the hosts take note of each command and do nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from roles.base.machine import COMMAND as LOOK_AT_MACHINE
from roles.base.machine import V3_FLAGS
from roles.gpus import nvidia, sysfs
from roles.gpus.driver import PASSTHROUGH
from roles.nvidia import setup
from roles.passthrough import boot, texts
from tests.conftest import ROOT, Ended, pyinfra
from tests.unit.cluster.examples import NETWORK, NEWER

CLUSTER = ROOT / "deploys" / "cluster.py"
COMMAND = re.compile(r"\[fake\] simulating (command|put_file|get_file) on @fake/(\S+): (.*(?:\n(?! {4}|-->).*)*)")

GOOD: dict[str, Any] = {"commit": NEWER, "network": NETWORK}
MODEL: dict[str, Any] = {"model_source": "https://models.example/gemma.gguf", "model_sha256": "f" * 64}
MACHINE = [
    "user 0",
    "sudo yes",
    "architecture x86_64",
    "systemd yes",
    "os ID debian",
    "os VERSION_ID 13",
    "os PRETTY_NAME Debian",
    f"flags {' '.join(sorted(V3_FLAGS))}",
]
SEEN = "basename"
"""A word of the command that shows what a host runs."""
BOOTS = {"hook-functions": ["initramfs-tools", "initrd 6.1.0-1-amd64 fresh", "loader grub", "entry /vmlinuz root=/dev/sda1 ro"]}
"""A word of the command that shows how a host boots → what one with GRUB answers that nothing of ours is on."""
LOOKING = [LOOK_AT_MACHINE, sysfs.look(), sysfs.ask_lspci(), nvidia.look()]
ADDRESSES = {"w1": "192.0.2.11", "w2": "192.0.2.12", "head": "192.0.2.10", "lost": "192.0.2.20", "virt": "192.0.2.30"}


def boots_with(*entries: str) -> dict[str, list[str]]:
    """A word of the command that shows how a host boots → what one answers that passes these functions through.

    :param entries: each as address/vendor:device
    """
    (name, plain), wanted = next(iter(BOOTS.items())), (f"{PASSTHROUGH}={','.join(entries)}", *texts.IOMMU)
    files = texts.scripts() | {texts.DROP_IN: texts.drop_in(wanted)}
    lines = [f"file {path} {sha256(text.encode()).hexdigest()}" for path, text in files.items()]
    return {name: [*(f"{line} {' '.join(wanted)}" if line.startswith("entry") else line for line in plain), *lines]}


@dataclass(frozen=True)
class Run:
    """A run that has ended.

    :param commands: what the hosts were told, as (host, command), in the order in which they were told
    """

    ended: Ended
    commands: list[tuple[str, str]]

    def hosts_told(self, words: str) -> list[str]:
        """The hosts that were told a command with these words in it."""
        return [host for host, command in self.commands if words in command]


def deploy(inventory: Path, *options: str, script: Path = CLUSTER, cwd: Path = ROOT, yes: Sequence[str] = ("-y",)) -> Run:
    """Run a deploy, unless said otherwise with `-y`."""
    ended = pyinfra(*yes, "--debug", *options, str(inventory), str(script), cwd=cwd, timeout=60)
    return Run(ended, [(name, command or kind) for kind, name, command in COMMAND.findall(ended.text)])


def fake(name: str, machine: Mapping[str, str] = {}, answers: Mapping[str, Any] = {}, **data: Any) -> tuple[str, dict[str, Any]]:
    """A host of an inventory.

    :param machine: what is different about it: the first word of a line that it says of itself → the rest
    :param answers: a part of a command → what the host answers to it
    """
    lines = [*(line for line in MACHINE if line.partition(" ")[0] not in machine), *(f"{key} {machine[key]}" for key in machine)]
    answers = {"/proc/sys/kernel/random/boot_id": [*lines, f"address {ADDRESSES[name]}/24"], **BOOTS, **answers}
    return f"@fake/{name}", {"fake_responses": answers, **data}


def inventory(folder: Path, **groups: list[tuple[str, dict[str, Any]]]) -> Path:
    path = folder / "inventory.py"
    path.write_text("".join(f"{name} = {hosts!r}\n" for name, hosts in groups.items()))
    return path


def good_inventory(folder: Path) -> Path:
    return inventory(folder, workers=[fake("w1", **GOOD), fake("w2", **GOOD)], heads=[fake("head", **GOOD, **MODEL)])


def is_look(command: str) -> bool:
    """Whether a command does nothing but show what a host is; it is cut off somewhere."""
    return any(known.strip().startswith(command.strip()) for known in (*LOOKING, boot.look(), setup.COMMAND))
