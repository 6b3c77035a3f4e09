"""The command that shows how far a host is with NVIDIA's driver, and its parser. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from roles.nvidia.parts import INSTALLER, NAMES
from roles.nvidia.texts import FILES, FORGOTTEN, MODPROBE, PERSISTENCE, UNIT

GONE = ("not-installed", "config-files")
"""Statuses of dpkg in which nothing of a package is there but its settings; in all others something is, finished or not."""

# A disk that is younger than the file has read it. Where nothing is there that makes one, or the kernel is gone, none is owed.
COMMAND = f"""exec 2>/dev/null
export LC_ALL=C PATH=$PATH:/usr/sbin:/sbin
for file in {" ".join([*FILES, FORGOTTEN])}; do
    [ -f $file ] && echo "file $file $(sha256sum <$file | cut -c -64)"
done
dpkg-query -W -f 'package ${{db:Status-Status}} ${{Package}}:${{Architecture}} ${{Version}}\\n' {shlex.join(NAMES)}
{{ command -v update-initramfs || command -v dracut; }} >/dev/null && for initrd in /boot/initrd.img-*; do
    kernel=${{initrd#/boot/initrd.img-}}
    [ -d "/lib/modules/$kernel" ] || continue
    [ {MODPROBE} -nt "$initrd" ] && echo "initrd old $kernel" || echo "initrd young $kernel"
done
[ -e {INSTALLER} ] && echo installer
[ -d /sys/module/nvidia ] && echo loaded
for unit in {PERSISTENCE} {UNIT}; do
    echo "unit $unit $(systemctl show $unit --property=UnitFileState,ActiveState,NeedDaemonReload | tr '\\n' ' ')"
done
true
"""


@dataclass(frozen=True)
class Setup:
    """What a host shows.

    :param files: path → SHA-256 of those of our files that are there
    :param packages: package → version of all that are called like the driver's, unfinished ones too; ``NAME:ARCHITECTURE`` where
        that is not the host's own
    :param initrds: kernels that have an initial RAM disk
    :param old_initrds: those of them whose disk was made before our file for modprobe
    :param installer: the driver was installed by NVIDIA's installer, not by packages
    :param loaded: the driver's module is loaded
    :param disabled, enabled, active: units, of the two that matter, that could start at boot and do not, that do, that run
    :param reload_owed: one of their files is newer than what systemd has read
    """

    files: Mapping[str, str] = field(default_factory=dict)
    packages: Mapping[str, str] = field(default_factory=dict)
    initrds: tuple[str, ...] = ()
    old_initrds: tuple[str, ...] = ()
    installer: bool = False
    loaded: bool = False
    disabled: frozenset[str] = frozenset()
    enabled: frozenset[str] = frozenset()
    active: frozenset[str] = frozenset()
    reload_owed: bool = False


def parse(lines: Sequence[str]) -> Setup:
    """Read the output of `COMMAND`; lines that it does not know are passed over."""
    files: dict[str, str] = {}
    packages: dict[str, str] = {}
    initrds: dict[str, bool] = {}
    units: dict[str, list[str]] = {}
    for line in lines:
        match line.split():
            case ["file", path, digest]:
                files[path] = digest
            case ["package", status, name, version] if status not in GONE:
                packages[name.removesuffix(":amd64").removesuffix(":all")] = version
            case ["initrd", age, kernel]:
                initrds[kernel] = age == "old"
            case ["unit", name, *properties]:
                units[name] = properties
    words = {line.strip() for line in lines}
    return Setup(
        files=files,
        packages=packages,
        initrds=tuple(initrds),
        old_initrds=tuple(kernel for kernel, old in initrds.items() if old),
        installer="installer" in words,
        loaded="loaded" in words,
        disabled=_with(units, "UnitFileState=disabled"),
        enabled=_with(units, "UnitFileState=enabled"),
        active=_with(units, "ActiveState=active"),
        reload_owed=bool(_with(units, "NeedDaemonReload=yes")),
    )


def _with(units: Mapping[str, list[str]], word: str) -> frozenset[str]:
    return frozenset(name for name, properties in units.items() if word in properties)
