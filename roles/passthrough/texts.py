"""What is written on a host: two scripts for its initramfs, and arguments of its kernel. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from roles.base.templates import render
from roles.cluster.provision import MachinePlan
from roles.gpus.driver import PASSTHROUGH

SCRIPT = "/etc/initramfs-tools/scripts/init-top/00-gpuquilt-passthrough"
"""Its name makes it the first: udev, which loads drivers, is started by a later one."""
HOOK = "/etc/initramfs-tools/hooks/gpuquilt-passthrough"
DROP_IN = "/etc/default/grub.d/gpuquilt-passthrough.cfg"
"""Sorts after those of the distribution, and adds to what they say."""
KERNEL_COMMAND_LINE = "/etc/kernel/cmdline"
"""The kernel's arguments for systemd-boot: kernel-install(8), and proxmox-boot-tool."""

IOMMU = ("intel_iommu=on", "iommu=pt")
"""AMD's is on by default, and the first says nothing to it; by the second the host's own devices do without translation."""

_OURS = re.compile(rf"{re.escape(PASSTHROUGH)}=\S*" + "".join(f"( {re.escape(word)})?" for word in IOMMU))
_OF_THE_BOOT_LOADER = ("BOOT_IMAGE=", "initrd=")


def words(machine: MachinePlan) -> tuple[str, ...]:
    """The kernel's arguments that the plan wants; empty where nothing is passed through."""
    entries = sorted({function.entry for function in machine.passthrough} | set(machine.passthrough_absent))
    return (f"{PASSTHROUGH}={','.join(entries)}", *IOMMU) if entries else ()


def scripts(root: str = "") -> dict[str, str]:
    """Path → text of what goes into the initramfs; it does nothing without the argument.

    :param root: the folder that sys and proc are in; empty for the host's own
    """
    return {
        SCRIPT: render("passthrough/init-top.sh.j2", argument=PASSTHROUGH, root=root),
        HOOK: render("passthrough/hook.sh.j2"),
    }


def drop_in(wanted: Iterable[str]) -> str:
    """What GRUB's configuration is to be told."""
    return render("passthrough/grub.cfg.j2", words=" ".join(wanted))


def merged(command_line: str, wanted: Sequence[str]) -> str:
    """The kernel's arguments with ours in the place that ours had, or at the end; foreign ones stay as they are.

    Ours are one run of words that begins with our own argument, so that nobody else's are taken away with them.

    :param wanted: empty to take ours away
    """
    before, after = command_line.strip(), ""
    if found := _OURS.search(before):
        before, after = before[: found.start()].strip(), before[found.end() :].strip()
    foreign = {*before.split(), *after.split()}
    ours = " ".join(word for word in wanted if word not in foreign)
    return " ".join(part for part in (before, ours, after) if part)


def without_boot_loader(command_line: str) -> str:
    """The running kernel's arguments without those that its boot loader has added."""
    return " ".join(word for word in command_line.split() if not word.startswith(_OF_THE_BOOT_LOADER))
