"""What a host shows of NVIDIA's driver, and of what would have to accept a new one. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase

from roles.gpus.catalog import Flavour
from roles.gpus.driver import PASSTHROUGH, Drivers, Nvidia, NvidiaGpu

FIELDS = (
    "pci.bus_id",
    "memory.total",
    "memory.used",
    "pstate",
    "utilization.gpu",
    "pcie.link.gen.current",
    "pcie.link.gen.max",
    "pcie.link.width.current",
    "pcie.link.width.max",
    "display_active",
    "compute_cap",
)
"""In this order; the last is unknown to drivers before 510, and one unknown field makes nvidia-smi refuse them all."""

PACKAGES = (
    "cuda-drivers*",
    "firmware-nvidia-gsp",
    "libcuda1",
    "libnvidia-compute*",
    "libnvidia-gl*",
    "linux-modules-nvidia*",
    "nvidia-compute*",
    "nvidia-dkms*",
    "nvidia-driver*",
    "nvidia-headless*",
    "nvidia-kernel*",
    "nvidia-legacy*",
    "nvidia-open*",
    "nvidia-persistenced",
    "nvidia-smi",
    "nvidia-tesla*",
    "nvidia-utils*",
    "nvidia-vulkan-icd",
)
"""How packages of the driver are called by Debian, Ubuntu and NVIDIA: patterns of dpkg-query."""

HEADERS = ("linux-headers-[a-z]*", "proxmox-default-headers", "pve-headers")
"""Likewise the metapackages of kernel headers; a package of one kernel's own headers has its version there."""

UNPACKED = ("installed", "unpacked", "half-configured", "triggers-awaited", "triggers-pending")
"""Statuses of dpkg in which a package's files are there: all but the first are left by a run that was broken off."""

LINES = 100
"""How much of the kernel's log is read at most."""

SECONDS = 20
"""How long nvidia-smi may take; with a GPU that it cannot reach it can hang."""

_PATTERNS = " ".join(f"'{name}'" for name in (*PACKAGES, *HEADERS))

# On Debian the module is nvidia-current.ko or nvidia-current-open.ko, and only modprobe's configuration says which it loads.
LOOK = rf"""
PATH=$PATH:/usr/sbin:/sbin
export LC_ALL=C
running=$(uname -r)
echo "kernel $running"
# The boot loader starts the newest by this order (grub-mkconfig_lib).
next=$(ls "$root/boot" | sed -n '/\.old$\|\.bak$\|\.dpkg-/d; s/^vmlinuz-//p' | sort -V | tail -n 1)
[ -n "$next" ] && echo "next $next"
kernel=${{next:-$running}}
[ -e "$root/lib/modules/$kernel/build" ] && echo headers
if [ -d "$root/sys/firmware/efi" ]; then
    echo "efi $(od -An -tu1 -j4 -N1 "$root/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c")"
    mokutil --sb-state | sed 's/^/mokutil /'
    for key in "$root/var/lib/dkms/mok.pub" "$root/var/lib/shim-signed/mok/MOK.der"; do
        [ -r "$key" ] && echo "key $(mokutil --test-key "$key")"
    done
fi
[ -e "$root/run/reboot-required" ] && echo reboot
read -r line <"$root/proc/cmdline"
for word in $line; do case $word in {PASSTHROUGH}=*) echo "passthrough ${{word#*=}}" ;; esac; done
sed -n 's/^NVRM version: */running /p' "$root/proc/driver/nvidia/version"
read -r version <"$root/sys/module/nvidia/version" && echo "loaded $version"
module=$(modprobe --set-version="$kernel" --show-depends nvidia | sed -n 's/^install .*modprobe -i \([^ ]*\).*/\1/p')
modinfo -k "$kernel" "${{module:-nvidia}}" | sed -n 's/^\(version\|license\): */\1 /p'
for source in "$root"/var/lib/dkms/nvidia*/*/source; do
    case $source in */nvidia-fs/*) continue ;; esac
    [ -e "$source" ] || [ -L "$source" ] || continue
    [ -n "$(ls -d "${{source%/source}}/$kernel"/*/module)" ] && echo "dkms built" || echo "dkms known"
done
dpkg-query -W -f 'package ${{db:Status-Status}} ${{Package}} ${{Version}}\n' {_PATTERNS}
dmesg --notime | sed -n '
    s/^\(\[[^]]*\]\)* *//
    s/pid[ =][0-9]*/pid/
    /NVRM: Xid/ {{ /fallen off the bus/ !d }}
    /^NVRM: \|D3cold to D0\|^Loading of .* is rejected\|unsigned module loading\|Key was rejected\|Required key/ s/^/log /p
' | awk '!seen[$0]++' | head -n {LINES}
[ -d "$root/sys/module/nvidia" ] && command -v nvidia-smi >/dev/null || exit 0
for gpu in "$root"/sys/bus/pci/drivers/nvidia/*:*; do
    read -r status <"$gpu/power/runtime_status" && case $status in suspend*) exit 0 ;; esac
done
ask() {{ said=$(timeout --kill-after=5 {SECONDS} nvidia-smi --query-gpu="$1" --format=csv,noheader,nounits 2>&1); }}
ask {",".join(FIELDS)}
case $? in 124 | 137) said="nvidia-smi did not answer within {SECONDS} s" ;; esac
case $said in *"not a valid field"*) ask {",".join(FIELDS[:-1])} ;; esac
printf '%s\n' "$said" | sed 's/^/smi /'
"""


def look(root: str = "") -> str:
    """The command whose output `parse` reads. It starts nvidia-smi only where that wakes no GPU.

    :param root: the folder that the host's folders are in; empty for the host's own
    """
    return f"exec 2>/dev/null\nroot={root}\n{LOOK}"


def parse(lines: Sequence[str]) -> Drivers:
    """Read the output of `look`; lines that it does not know are passed over."""
    values: dict[str, str] = {}
    packages: dict[str, str] = {}
    log: list[str] = []
    dkms: set[str] = set()
    enrolled = False
    said: list[str] = []
    mokutil: list[str] = []
    for line in lines:
        key, _, value = line.partition(" ")
        if key == "package":
            packages |= _package(value)
        elif key == "log":
            log.append(value.strip())
        elif key == "dkms":
            dkms.add(value.strip())
        elif key == "key":
            enrolled = enrolled or "already enrolled" in value
        elif key == "mokutil":
            mokutil.append(value)
        elif key == "smi":
            said.append(value.strip())
        else:
            values[key] = value.strip()
    running, running_flavour = _running(values.get("running", ""))
    gpus = {line: _gpu(line) for line in said if line}
    headers = tuple(name for name in packages if any(fnmatchcase(name, pattern) for pattern in HEADERS))
    return Drivers(
        kernel=values.get("kernel", ""),
        next_kernel=values.get("next", ""),
        headers="headers" in values,
        header_packages=headers,
        log=tuple(log),
        secure_boot=_secure_boot("\n".join(mokutil), values.get("efi")),
        own_key_enrolled=enrolled,
        reboot_wanted="reboot" in values,
        passthrough=tuple(entry for entry in values.get("passthrough", "").split(",") if entry),
        nvidia=Nvidia(
            loaded=running or values.get("loaded", ""),
            loaded_flavour=running_flavour,
            on_disk=values.get("version", ""),
            on_disk_flavour=_flavour(values.get("license", "")),
            dkms="built" in dkms if dkms else None,
            packages={name: version for name, version in packages.items() if name not in headers},
            problem="; ".join(line for line, gpu in gpus.items() if not gpu),
            gpus=dict(gpu for gpu in gpus.values() if gpu),
        ),
    )


def _package(text: str) -> dict[str, str]:
    words = text.split()
    return {words[1]: words[2]} if len(words) == 3 and words[0] in UNPACKED else {}


def _secure_boot(mokutil: str, variable: str | None) -> bool | None:
    """What mokutil says, else the firmware's variable; shim can be told not to check what the firmware would have checked."""
    if "disabled" in mokutil or "doesn't support" in mokutil:
        return False
    if "SecureBoot enabled" in mokutil:
        return True
    return {"1": True, "0": False}.get(variable or "")


def _running(text: str) -> tuple[str, Flavour | None]:
    """Version and flavour from the first line of /proc/driver/nvidia/version (nv-procfs.c of NVIDIA's open kernel modules)."""
    found = re.search(r"(Open )?Kernel Module(?: for \S+)?\s+([0-9]+(?:\.[0-9]+)+)", text)
    return (found[2], "open" if found[1] else "proprietary") if found else ("", None)


def _flavour(license_: str) -> Flavour | None:
    """The licence of the module file tells its flavour (nv.c of NVIDIA's open kernel modules)."""
    flavours: dict[str, Flavour] = {"Dual MIT/GPL": "open", "NVIDIA": "proprietary"}
    return flavours.get(license_)


def _gpu(line: str) -> tuple[str, NvidiaGpu] | None:
    """Address and what is said of a GPU, from a line of `FIELDS`; None for any other line."""
    address, *words = (word.strip() for word in line.split(","))
    found = re.fullmatch(r"([0-9A-F]{8}):([0-9A-F]{2}:[0-9A-F]{2}\.[0-7])", address.upper())
    if not found or len(words) not in (len(FIELDS) - 1, len(FIELDS) - 2):
        return None
    memory, used, performance, load, generation, max_generation, width, max_width, display, *capability = words
    return f"{int(found[1], 16):04x}:{found[2].lower()}", NvidiaGpu(
        memory_mib=_number(memory),
        used_mib=_number(used),
        performance=_number(performance.removeprefix("P")),
        load_percent=_number(load),
        width=_number(width),
        max_width=_number(max_width),
        generation=_number(generation),
        max_generation=_number(max_generation),
        display={"Enabled": True, "Disabled": False}.get(display),
        compute_capability=next((text for text in capability if re.fullmatch(r"[0-9]+\.[0-9]", text)), None),
    )


def _number(text: str) -> int | None:
    """None for ``[N/A]``, ``[Not Supported]``, ``ERR!`` and the like."""
    return int(text) if re.fullmatch(r"[0-9]{1,9}", text) else None
