"""What has to be done, and what must not be: decided from one look, without touching anything."""

from __future__ import annotations

import json
from collections.abc import Iterable
from enum import Enum
from typing import Any

from roles.sandbox.layout import Layout, Machine, describe
from roles.sandbox.seen import Seen

STATE_ENTRIES = frozenset({"machines.json", "machines", "ssh"})
CACHE_ENTRIES = frozenset({"base", "ccache", "inputs", "lock"})
"""All that the sandbox puts into its folders, and so all that it ever removes from them."""

CACHE_MIB = 2048
STATE_MIB = 4096
"""Disk that downloads and the base take; and the machines, with build tools and two llama.cpp releases in each."""


class Step(Enum):
    """What can be done with a machine, in this order."""

    STOP = "stop"
    MAKE = "make"
    START = "start"
    PLUG = "plug"


def steps(seen: Seen, machine: Machine) -> tuple[Step, ...]:
    """What turns the machine that is there into one that runs on our bridge; empty when it does.

    A machine whose cable or root file system was taken away cannot be helped while it runs.
    """
    found = seen.machines.get(machine.name)
    remains = seen.remains_of([machine.name])
    if found is not None and found.mounted and found.cable and len(remains.processes) == 1:
        return () if found.plugged else (Step.PLUG,)
    stop = (Step.STOP,) if remains else ()
    make = (Step.MAKE,) if found is None else ()
    return (*stop, *make, Step.START)


def known_hosts(seen: Seen, layout: Layout) -> str:
    """The known_hosts file; a machine whose key is not there yet is left out."""
    lines = []
    for machine in layout.machines:
        key = seen.ssh.get(f"{machine.name}_ed25519.pub", "").split()
        if len(key) >= 2:
            lines.append(f"{machine.address},{machine.name} {key[0]} {key[1]}")
    return "\n".join(lines)


def missing_keys(seen: Seen, layout: Layout) -> list[str]:
    """Paths of the private keys that are still to be made; a key without its public half was interrupted."""
    wanted = [layout.key, *(layout.host_key(machine) for machine in layout.machines)]
    return [path for path in wanted if not {path.rpartition("/")[2], path.rpartition("/")[2] + ".pub"} <= set(seen.ssh)]


def table_is_complete(seen: Seen, rendered: str) -> bool:
    """Our nftables table has all the lines that it was rendered with."""
    return {line.strip() for line in rendered.splitlines()} <= set(seen.table)


def bridge_is_up(seen: Seen, layout: Layout) -> bool:
    """The bridge is there, up, and has our address: only then is the subnet reached through it."""
    return seen.has_bridge and any(route.interface == layout.bridge and route.network == layout.subnet for route in seen.routes)


def kernel_settings_stay(seen: Seen) -> str:
    """The sentence for a computer on which another bridge keeps kernel settings from being put back."""
    before = ", ".join(f"{key} = {value}" for key, value in sorted(seen.remembered.items()))
    return (
        f"the kernel settings stay as they are, because {', '.join(seen.other_bridges)} may need them by now;"
        f" before the sandbox: {before}."
    )


def refusals(seen: Seen, layout: Layout, nameservers: Iterable[str], local: bool) -> list[str]:
    """Why no sandbox can be made here, one sentence each; empty: nothing speaks against it."""
    found = must_be_root_here(seen, local)
    distribution, version, _ = seen.release
    if (distribution, version) not in {("debian", "12"), ("debian", "13")}:
        name = f"{distribution} {version}".strip() or "an unknown system"
        found.append(f"the sandbox needs Debian 12 or 13 as root file system and this is {name}: use such a computer or VM.")
    found += _subnet_in_use(seen, layout)
    found += foreign_folder(seen, layout) or _other_settings(seen, layout)
    found += _too_little_disk(seen, layout)
    if seen.mirrors is None:
        found.append(
            "no http(s) package mirror for this release was found in /etc/apt/sources.list and /etc/apt/sources.list.d:"
            " add one, the machines get their packages from the same place."
        )
    if not list(nameservers):
        found.append(
            "this computer's resolver listens on a loopback address only, where the machines cannot ask it:"
            " set sandbox_nameserver to one that they can reach."
        )
    return found


def must_be_root_here(seen: Seen, local: bool) -> list[str]:
    """What both making and removing a sandbox need."""
    found = []
    if not local:
        found.append("the sandbox is made on the computer that pyinfra runs on: use @local as the inventory.")
    if seen.user != 0:
        found.append("the sandbox needs root: run it as root or with sudo.")
    return found


def _subnet_in_use(seen: Seen, layout: Layout) -> list[str]:
    taken = [route for route in seen.routes if route.interface != layout.bridge and route.network.overlaps(layout.subnet)]
    return [
        f"the sandbox's subnet {layout.subnet} is already in use: the interface {route.interface} leads to"
        f" {route.network}; set sandbox_subnet to a free /24 (--data sandbox_subnet=198.18.80.0/24)."
        for route in taken[:1]
    ]


def foreign_folder(seen: Seen, layout: Layout) -> list[str]:
    """Why the state folder is not this sandbox's: making or removing a sandbox there would touch what is not ours."""
    strangers = seen.state_entries - STATE_ENTRIES
    if strangers and not seen.description:
        return [
            f"the folder {layout.state} holds other things than a sandbox ({min(strangers)}):"
            " set sandbox_state to a folder of its own."
        ]
    prefix = _made_with(seen).get("prefix", layout.prefix)
    if prefix != layout.prefix:
        return [
            f"the folder {layout.state} holds the sandbox {prefix!r} and not {layout.prefix!r}:"
            " set sandbox_prefix and sandbox_state together."
        ]
    return []


def _other_settings(seen: Seen, layout: Layout) -> list[str]:
    made, wanted = _made_with(seen), describe(layout)
    if not made:
        return []
    changed = ["sandbox_subnet"] if made.get("subnet") != wanted["subnet"] else []
    changed += [str(machine.get("name")) for machine in made.get("machines", []) if machine not in wanted["machines"]]
    return (
        [
            f"the sandbox in {layout.state} was made with other settings ({', '.join(changed)}): remove it first"
            " (deploys/sandbox_down.py), or give the new one a sandbox_prefix, sandbox_subnet and sandbox_state of its own."
        ]
        if changed
        else []
    )


def _made_with(seen: Seen) -> dict[str, Any]:
    """What machines.json says; empty when there is none, or only half of one."""
    try:
        made = json.loads(seen.description or "{}")
    except ValueError:
        return {}
    return made if isinstance(made, dict) else {}


def _too_little_disk(seen: Seen, layout: Layout) -> list[str]:
    needs = {
        "state": 0 if set(seen.machines) >= {machine.name for machine in layout.machines} else STATE_MIB,
        "cache": 0 if seen.has_mirror and seen.has_model and seen.bases >= set(layout.suites) else CACHE_MIB,
    }
    file_systems: dict[str, tuple[int, int]] = {}
    for which, (mount, free) in seen.free.items():
        file_systems[mount] = (file_systems.get(mount, (0, 0))[0] + needs[which], free)
    return [
        f"the file system at {mount} has {free} MiB free and the sandbox needs {need} MiB there: make room, or set"
        " sandbox_state and sandbox_cache to folders on a larger one."
        for mount, (need, free) in file_systems.items()
        if need > free
    ]
