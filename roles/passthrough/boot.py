"""How a host boots, what of ours is in that, and why that cannot be changed. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from roles.cluster.passthrough import VFIO
from roles.cluster.provision import MachinePlan
from roles.gpus.driver import PASSTHROUGH
from roles.passthrough.texts import DROP_IN, HOOK, KERNEL_COMMAND_LINE, SCRIPT, words

REFRESHED = "/var/lib/gpuquilt/passthrough"
"""The arguments that the boot loader was refreshed with, where its own files do not lie open: on a partition that may not be
mounted. It is empty while they are written; without it, nothing of ours has been there."""

LOADER_INFO = "LoaderInfo-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"
"""The variable by which a boot loader names itself (https://systemd.io/BOOT_LOADER_INTERFACE)."""

# A file of ours that the initramfs could not run has no digest: it is written anew. Where proxmox-boot-tool keeps GRUB's
# configuration, on partitions of its own, there need be none below /boot.
LOOK = rf"""
PATH=$PATH:/usr/sbin:/sbin
[ -e "$root/usr/share/initramfs-tools/hook-functions" ] && command -v update-initramfs >/dev/null && echo initramfs-tools
for file in {SCRIPT} {HOOK} {DROP_IN}; do
    [ -e "$root$file" ] || continue
    [ -x "$root$file" ] || [ "$file" = {DROP_IN} ] && echo "file $file $(sha256sum <"$root$file")" || echo "file $file damaged"
done
for kernel in "$root"/boot/vmlinuz-*; do
    version=${{kernel##*/vmlinuz-}}
    initrd=$root/boot/initrd.img-$version
    [ -e "$initrd" ] || continue
    state=old
    [ "$initrd" -nt "$root{SCRIPT}" ] && [ "$initrd" -nt "$root{HOOK}" ] && state=fresh
    echo "initrd $version $state"
done
proxmox=
[ -s "$root/etc/kernel/proxmox-boot-uuids" ] && command -v proxmox-boot-tool >/dev/null && proxmox=proxmox
echo "$proxmox"
grub="$root/boot/grub/grub.cfg"
entries=$(sed -n '/^### BEGIN .*\/10_linux/,/^### END/s/^[[:space:]]*linux[a-z0-9]*[[:space:]]/entry /p' "$grub" | sort -u)
if tr -d '\000' <"$root/sys/firmware/efi/efivars/{LOADER_INFO}" | grep -q systemd-boot; then
    command -v kernel-install >/dev/null || command -v proxmox-boot-tool >/dev/null && echo "loader systemd-boot"
elif command -v update-grub >/dev/null && [ -n "$entries$proxmox" ]; then
    echo "loader grub"
fi
printf "%s\n" "$entries"
[ -e "$root{KERNEL_COMMAND_LINE}" ] && echo "command-line $(tr -s '[:space:]' ' ' <"$root{KERNEL_COMMAND_LINE}")"
echo "running $(cat "$root/proc/cmdline")"
[ -e "$root{REFRESHED}" ] && echo "refreshed $(cat "$root{REFRESHED}")"
grep -qE '^[[:space:]]*options[[:space:]]+vfio[-_]pci[[:space:]].*ids=' "$root"/etc/modprobe.d/*.conf && echo foreign
grep -qE '(^| )vfio[-_]pci\.ids=' "$root/proc/cmdline" && echo foreign
grep -qs vfio-pci "$root"/etc/driverctl.d/* && echo foreign
true
"""


@dataclass(frozen=True)
class Boot:
    """What a host shows.

    :param initramfs_tools: they make its initramfs
    :param initrds: kernel version → its initramfs is newer than our scripts
    :param loader: ``grub``, ``systemd-boot``, or empty for one that we do not know
    :param proxmox: proxmox-boot-tool keeps the boot loader's files
    :param entries: the kernel lines of GRUB's configuration
    :param command_line: what `KERNEL_COMMAND_LINE` says; None where it is not there
    :param running: the arguments of the running kernel
    :param refreshed: what `REFRESHED` says; None where it is not there
    :param foreign: somebody else binds devices to vfio-pci here
    :param files: path → SHA-256 of those of our files that are there, or ``damaged``
    """

    initramfs_tools: bool = False
    initrds: Mapping[str, bool] = field(default_factory=dict)
    loader: str = ""
    proxmox: bool = False
    entries: tuple[str, ...] = ()
    command_line: str | None = None
    running: str = ""
    refreshed: str | None = None
    foreign: bool = False
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def shows_entries(self) -> bool:
        """Whether what the boot loader will do can be read."""
        return self.loader == "grub" and not self.proxmox


def look(root: str = "") -> str:
    """The command whose output `parse` reads.

    :param root: the folder that the host's folders are in; empty for the host's own
    """
    return f"exec 2>/dev/null\nroot={root}\n{LOOK}"


def parse(lines: Sequence[str]) -> Boot:
    """Read the output of `look`; lines that it does not know are passed over."""
    values: dict[str, str] = {}
    entries: list[str] = []
    initrds: dict[str, bool] = {}
    files: dict[str, str] = {}
    for line in lines:
        key, _, value = line.strip().partition(" ")
        match key, value.split():
            case "entry", [_, *_]:
                entries.append(value)
            case "initrd", [version, state]:
                initrds[version] = state == "fresh"
            case "file", [path, digest, *_]:
                files[path] = digest
            case _:
                values[key] = value.strip()
    return Boot(
        initramfs_tools="initramfs-tools" in values,
        initrds=initrds,
        loader=values.get("loader", ""),
        proxmox="proxmox" in values,
        entries=tuple(entries),
        command_line=values.get("command-line"),
        running=values.get("running", ""),
        refreshed=values.get("refreshed"),
        foreign="foreign" in values,
        files=files,
    )


def bound_by_others(boot: Boot, machine: MachinePlan) -> bool:
    """Whether everything is bound by other means than ours, which are left alone then."""
    ours = bool(boot.files) or PASSTHROUGH in boot.running or boot.refreshed is not None
    bound = all(function.driver == VFIO for function in machine.passthrough)
    return bool(machine.passthrough) and bound and boot.foreign and not ours


def says(text: str, wanted: Sequence[str]) -> bool:
    """Whether a kernel's arguments are what is wanted, as far as they are ours."""
    found = text.split()
    ours = [word for word in found if word.startswith(f"{PASSTHROUGH}=")]
    return set(wanted) <= set(found) and ours == list(wanted[:1])


def problems(boot: Boot, machine: MachinePlan) -> list[str]:
    """Why this host cannot be made to boot as the plan wants, one sentence each."""
    wanted = words(machine)
    if bound_by_others(boot, machine):
        return []
    found = []
    if wanted and not (boot.initramfs_tools and boot.initrds):
        found.append(
            "its initramfs is not made by initramfs-tools, which we bind cards with: install that in place of dracut, or bind the"
            " card by other means first, e.g. with `driverctl set-override`."
        )
    if not boot.loader and not says(boot.running, wanted):
        task = (
            f"give the kernel the arguments {' '.join(wanted)}" if wanted else f"take {PASSTHROUGH} from the kernel's arguments"
        )
        found.append(f"its boot loader is neither GRUB nor systemd-boot: {task} by hand, reboot, and run again.")
    return found
