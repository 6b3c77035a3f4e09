"""What sysfs shows of a host's cards with all their functions, of the bridges above, and of what shares IOMMU groups. Pure.

It needs neither root nor a package, and wakes nothing. Reading the configuration space of a suspended device can wake it, and
since Linux 6.18 and 6.6.113 ("PCI/sysfs: Ensure devices are powered for config reads") reading its link files as well: of such a
device only what the kernel remembers is read. A card that vfio-pci holds while no VM uses it is suspended, too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from roles.gpus.pci import ALL_ONES, Device, LinkState

ADDRESS = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
MEMORY_WINDOW = 0x200
"""IORESOURCE_MEM of include/linux/ioport.h."""
MIB = 2**20
SELECT = r"""
want() { case " $wanted " in *" $1 "*) ;; *) wanted="$wanted $1" ;; esac; }
asleep() { read -r status <"$1/power/runtime_status" && case $status in suspend*) true ;; *) false ;; esac; }
wanted= cards=
for device in "$root"/sys/bus/pci/devices/*; do
    read -r class <"$device/class" || continue
    case $class in 0x03*) ;; *) continue ;; esac
    cards="$cards ${device##*/}"
    path=$(cd -P "$device" && pwd)
    while case ${path##*/} in *:*:*.*) true ;; *) false ;; esac; do
        want "${path##*/}"
        path=${path%/*}
    done
done
"""
"""Shell: display devices and the bridges above them, their addresses in `wanted`, those of display devices alone in `cards`; the
path of a device leads over its bridges."""

LOOK = r"""
say() { read -r value <"$1" && echo "$1 $value"; }
for address in $cards; do
    for function in "$root/sys/bus/pci/devices/${address%.*}".*; do want "${function##*/}"; done
done
for address in $wanted; do
    for member in "$root/sys/bus/pci/devices/$address"/iommu_group/devices/*; do
        [ -e "$member" ] && want "${member##*/}"
    done
done
for address in $wanted; do
    cd -P "$root/sys/bus/pci/devices/$address" || continue
    echo "path $PWD"
    say class
    say vendor
    say device
    (cd -P driver && echo "driver ${PWD##*/}")
    (cd -P iommu_group && echo "iommu_group ${PWD##*/}")
    for window in 0 1 2 3 4 5; do read -r range && echo "window $window $range"; done <resource
    if asleep .; then
        echo asleep
        continue
    fi
    for file in current_link_width max_link_width current_link_speed max_link_speed gpu_busy_percent mem_info_vram_total; do
        [ -e "$file" ] && { say "$file" || echo "$file error"; }
    done
done
true
"""


# lspci reads the configuration space of what its filter lets through, and of nothing else: scan_device() in lspci.c of pciutils;
# strace shows the same of 3.9.0.
ASK_LSPCI = r"""
for address in $wanted; do
    asleep "$root/sys/bus/pci/devices/$address" || LC_ALL=C lspci -D -nn -vvk -s "$address"
done
true
"""


def look(root: str = "") -> str:
    """The command whose output `parse` reads: POSIX shell, and no program but that.

    :param root: the folder that sys is in; empty for the host's own
    """
    return f"exec 2>/dev/null\nroot={root}\n{SELECT}{LOOK}"


def ask_lspci(root: str = "") -> str:
    """The command that prints what lspci says of display devices and the bridges above them; what is suspended is left out.

    :param root: the folder that sys is in; empty for the host's own
    """
    return f"exec 2>/dev/null\nroot={root}\nPATH=$PATH:/usr/sbin:/sbin\n{SELECT}{ASK_LSPCI}"


@dataclass
class _Found:
    """The lines about one device."""

    path: list[str]
    values: dict[str, str] = field(default_factory=dict)
    windows: dict[int, float] = field(default_factory=dict)


def parse(lines: Sequence[str]) -> list[Device]:
    """Read the output of `look`, in the order of the addresses; lines that it does not know are passed over."""
    found: list[_Found] = []
    for line in lines:
        key, _, value = line.partition(" ")
        if key == "path":
            found.append(_Found(value.split("/")))
        elif found and key == "window":
            found[-1].windows |= _window(value)
        elif found:
            found[-1].values[key] = value
    devices = {one.path[-1]: _device(one) for one in found if ADDRESS.fullmatch(one.path[-1])}
    return [devices[address] for address in sorted(devices)]


def _device(found: _Found) -> Device:
    values = found.values
    above = found.path[-2] if len(found.path) > 1 else ""
    memory = _number(values.get("mem_info_vram_total"))
    return Device(
        address=found.path[-1],
        class_id=_digits(values.get("class", ""))[:4] or None,
        vendor_id=_digits(values.get("vendor", "")) or None,
        device_id=_digits(values.get("device", "")) or None,
        driver=values.get("driver"),
        link=_link(values),
        dead=_dead(values),
        asleep="asleep" in values,
        windows=tuple(sorted(found.windows.items())),
        parent=above if ADDRESS.fullmatch(above) else None,
        iommu_group=_number(values.get("iommu_group")),
        load_percent=_number(values.get("gpu_busy_percent")),
        memory_mib=None if memory is None else memory // MIB,
    )


def _dead(values: dict[str, str]) -> bool:
    """Its link registers read all ones, or cannot be read any more."""
    width = values.get("current_link_width", "")
    return width == "error" or _number(width) == ALL_ONES


def _link(values: dict[str, str]) -> LinkState | None:
    link = LinkState(
        width=_lanes(values.get("current_link_width")),
        max_width=_lanes(values.get("max_link_width")),
        speed_gts=_speed(values.get("current_link_speed", "")),
        max_speed_gts=_speed(values.get("max_link_speed", "")),
    )
    return None if _dead(values) or link == LinkState() else link


def _lanes(text: str | None) -> int | None:
    """Lanes; a device that is built into the root complex shows 0 now and 255 at most (PCIE_LNK_WIDTH_UNKNOWN of the kernel)."""
    lanes = _number(text)
    return lanes if lanes and lanes < ALL_ONES else None


def _speed(text: str) -> float | None:
    """GT/s: ``8.0 GT/s PCIe``, or ``8 GT/s`` before Linux 5.7; None for ``Unknown`` and ``Unknown speed``."""
    found = re.match(r"([0-9]{1,3}(?:\.[0-9])?) GT/s", text)
    return float(found[1]) if found else None


def _window(text: str) -> dict[int, float]:
    """Number → size in MiB of a BAR in memory; the file ``resource`` has start, end and flags of each in hexadecimal."""
    found = re.fullmatch(r"([0-5]) 0x([0-9a-f]{1,16}) 0x([0-9a-f]{1,16}) 0x([0-9a-f]{1,16})", text)
    if not found:
        return {}
    start, end, flags = (int(word, 16) for word in found.groups()[1:])
    return {int(found[1]): (end - start + 1) / MIB} if flags & MEMORY_WINDOW and end > start else {}


def _digits(text: str) -> str:
    found = re.fullmatch(r"0x([0-9a-f]{4,6})", text)
    return found[1] if found else ""


def _number(text: str | None) -> int | None:
    return int(text) if text and re.fullmatch(r"[0-9]{1,18}", text) else None
