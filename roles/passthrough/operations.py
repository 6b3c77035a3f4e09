"""Putting it into a host's boot configuration, taking it out again, and looking at what came of it."""

from __future__ import annotations

import shlex
from hashlib import sha256

from pyinfra import host, inventory, state
from pyinfra.api import StringCommand, operation

from roles.base.operations import Commands, long_work, written
from roles.base.remote import say
from roles.cluster.operations import fails
from roles.cluster.passthrough import VFIO
from roles.cluster.provision import MachinePlan
from roles.gpus.catalog import load
from roles.gpus.driver import PASSTHROUGH
from roles.gpus.facts import PciFact
from roles.passthrough import boot, outcome
from roles.passthrough.boot import REFRESHED, Boot
from roles.passthrough.facts import BootFact
from roles.passthrough.texts import (
    DROP_IN,
    HOOK,
    KERNEL_COMMAND_LINE,
    SCRIPT,
    drop_in,
    merged,
    scripts,
    without_boot_loader,
    words,
)

INITRAMFS, BOOT_LOADER = "initramfs", "boot-loader"
"""Names of the long work, see `roles.base.operations.long_work`."""

INSTALL_KERNELS = """for kernel in /boot/vmlinuz-*; do
    version=${kernel#/boot/vmlinuz-}
    initrd=/boot/initrd.img-$version
    [ -e "$initrd" ] || continue
    kernel-install add "$version" "$kernel" "$initrd"
done"""
"""As Debian's own hooks of systemd-boot do."""


@operation()
def settle(machine: MachinePlan) -> Commands:
    """From the next boot on the functions of the plan are bound to vfio-pci, and nothing else is by us.

    The initramfs comes before the kernel's argument, and goes after it: what boots with the argument can act on it.
    """
    seen = host.get_fact(BootFact)
    wanted = words(machine)
    refused = boot.problems(seen, machine)
    if refused:
        yield fails("\n".join(f"{host.name}: {line}" for line in refused))
    elif boot.bound_by_others(seen, machine):
        host.noop("bound by other means than ours")
    elif wanted:
        yield from _initramfs(seen)
        yield from _boot_loader(seen, wanted)
        host.noop("the host boots so")
    else:
        yield from _take_back(seen)


@operation()
def take_back() -> Commands:
    """From the next boot on nothing is bound by us; nothing of ours is left."""
    seen = host.get_fact(BootFact)
    yield from _take_back(seen)
    if state.is_executing and PASSTHROUGH in seen.running:
        owed = f"a reboot is owed: until then the cards are bound to {VFIO}, and not with their own drivers."
        for line in boot.problems(seen, MachinePlan()) or [owed]:
            say(host, line)


def _initramfs(seen: Boot) -> Commands:
    outdated = {path: text for path, text in scripts().items() if seen.files.get(path) != _digest(text)}
    for path, text in outdated.items():
        yield written(path, text, mode="755")
    old = [version for version, fresh in seen.initrds.items() if outdated or not fresh]
    if old:
        lines = [f"update-initramfs -u -k {shlex.quote(version)}" for version in old]
        yield from long_work(INITRAMFS, "\n".join(["set -e", *lines, ""]))


def _boot_loader(seen: Boot, wanted: tuple[str, ...]) -> Commands:
    if seen.loader == "grub":
        path, text, there = DROP_IN, drop_in(wanted), seen.files.get(DROP_IN) == _digest(drop_in(wanted))
    elif seen.loader == "systemd-boot":
        # Without the file, kernel-install takes what the running kernel was booted with.
        before = without_boot_loader(seen.running) if seen.command_line is None else seen.command_line
        path, text = KERNEL_COMMAND_LINE, f"{merged(before, wanted)}\n"
        there = seen.command_line == text.strip()
    else:
        return
    if seen.shows_entries:
        refreshed = bool(seen.entries) and all(boot.says(entry, wanted) for entry in seen.entries)
    else:
        refreshed = seen.refreshed == " ".join(wanted)
    if not refreshed and not seen.shows_entries:
        yield written(REFRESHED, "")
    if not there:
        yield written(path, text, mode="644")
    if not refreshed:
        mark = "" if seen.shows_entries else written(REFRESHED, " ".join(wanted))
        yield from long_work(BOOT_LOADER, f"set -e\n{_refresh(seen)}\n{mark}\n")


def _take_back(seen: Boot) -> Commands:
    owed = seen.refreshed is not None or (seen.shows_entries and any(PASSTHROUGH in entry for entry in seen.entries))
    if DROP_IN in seen.files:
        yield StringCommand(f"rm -f {DROP_IN}")
    if seen.command_line and PASSTHROUGH in seen.command_line:
        yield written(KERNEL_COMMAND_LINE, f"{merged(seen.command_line, ())}\n", mode="644")
    if owed and seen.loader:
        yield from long_work(BOOT_LOADER, f"set -e\n{_refresh(seen)}\nrm -f {REFRESHED}\n")
    if {SCRIPT, HOOK} & set(seen.files):
        yield StringCommand(f"rm -f {SCRIPT} {HOOK}")
    host.noop("nothing of ours is there")


def _refresh(seen: Boot) -> str:
    if seen.proxmox:
        return "proxmox-boot-tool refresh"
    return "update-grub" if seen.loader == "grub" else INSTALL_KERNELS


@operation()
def verify(machine: MachinePlan) -> Commands:
    """The functions of the plan are bound to vfio-pci, and no others; says what the virtual machines need to have them."""
    devices = host.get_fact(PciFact)
    wrong = outcome.problems(machine, devices)
    if wrong:
        yield fails("\n".join(f"{host.name}: {line}" for line in wrong))
        return
    if state.is_executing:
        for line in outcome.report(machine, devices, _guests(), load()):
            say(host, line)
    host.noop("it is as planned")


def _guests() -> list[str]:
    """The virtual machines of this host that are to have GPUs; all of them where the inventory says that of none."""
    guests = [other for other in inventory if other.data.get("runs_on") == host.name]
    return [other.name for other in guests if other.data.get("gpus")] or [other.name for other in guests]


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()
