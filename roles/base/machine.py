"""What a host is, read from the output of one command: pure parsing."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address

V2_FLAGS = frozenset({"cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3"})
V3_FLAGS = V2_FLAGS | {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"}
"""The flags of /proc/cpuinfo that make the levels of the x86-64 psABI (https://gitlab.com/x86-psABIs/x86-64-ABI)."""

USER = "llama"
"""The system user that the services run as."""
HOME = "/var/cache/llama.cpp"
"""Its home, and LLAMA_CACHE of the services."""


@dataclass(frozen=True)
class Identity:
    """The user `USER` as a container is to know it.

    :param user: its number
    :param group: that of its own group
    :param groups: those of all others that it is in
    :param unlimited: its processes may be given more of a resource than the host's limit: not so where the host is itself a
        container that lacks CAP_SYS_RESOURCE
    """

    user: int
    group: int
    groups: tuple[int, ...] = ()
    unlimited: bool = True


CAP_SYS_RESOURCE = 24
"""Source: capability.h of Linux."""


def parse_identity(lines: Sequence[str]) -> Identity:
    """Read user, group, all groups, and what the host's first process may do, as /proc shows it in hexadecimal digits."""
    user, group, groups, capabilities = lines
    others = {int(word) for word in groups.split()} - {int(group)}
    return Identity(int(user), int(group), tuple(sorted(others)), bool(int(capabilities, 16) >> CAP_SYS_RESOURCE & 1))


UNFINISHED = r"""
# While a package manager is at work, what it is in the middle of is no fault: its lock is held.
grep -qsF "$(stat -c ':%i ' /var/lib/dpkg/lock 2>/dev/null || echo none)" /proc/locks ||
    dpkg-query -W -f 'unfinished ${db:Status-Status} ${Package}\n' 2>/dev/null | grep -E '^unfinished (unpacked|half-)'
"""
"""Shows the packages that dpkg was interrupted in. What waits for a trigger alone is usable."""

COMMAND = (
    r"""
echo "user $(id -u)"
echo "sudo $(sudo -n true 2>&1 >/dev/null && echo yes)"
echo "account $(getent passwd llama | cut -d : -f 6)"
echo "architecture $(uname -m)"
echo "boot_id $(cat /proc/sys/kernel/random/boot_id)"
echo "systemd $([ -d /run/systemd/system ] && echo yes)"
sed -n 's/^\(ID\|VERSION_ID\|PRETTY_NAME\)=/os \1 /p' /etc/os-release
sed -n 's/^flags[^:]*: /flags /p;T;q' /proc/cpuinfo
ip -o -4 addr show scope global | awk '{print "address " $4}'
"""
    + UNFINISHED
    + "true\n"
)


@dataclass(frozen=True)
class Machine:
    """What this run cannot change of a host.

    :param root: the connection's user is root
    :param sudo: what `sudo -n true` says: ``yes``, or its error
    :param account: the home of the user `USER`; empty where there is none
    :param architecture: as `uname -m` names it
    :param boot_id: tells one boot from another, and a host from the controller
    :param systemd: PID 1 is systemd
    :param os_id: ``ID`` of os-release, e.g. debian
    :param os_version: ``VERSION_ID`` of os-release, e.g. 13; empty on a rolling release
    :param os_name: ``PRETTY_NAME`` of os-release
    :param cpu_level: ``v3``, ``v2`` or ``v1``: the x86-64 level that the CPU can run
    :param addresses: the IPv4 addresses of its interfaces, loopback left out
    :param unfinished: the packages that dpkg was interrupted in
    """

    root: bool
    sudo: str
    account: str
    architecture: str
    boot_id: str
    systemd: bool
    os_id: str
    os_version: str
    os_name: str
    cpu_level: str
    addresses: tuple[IPv4Address, ...]
    unfinished: tuple[str, ...] = ()


def parse(lines: Sequence[str]) -> Machine:
    """Read the output of `COMMAND`; lines that it does not know are passed over."""
    words: dict[str, str] = {}
    addresses: list[IPv4Address] = []
    for line in lines:
        key, _, value = line.partition(" ")
        if key == "address":
            addresses += _address(value)
        elif key == "os":
            name, _, quoted = value.partition(" ")
            words[name] = _unquote(quoted)
        elif key != "unfinished":
            words[key] = value.strip()
    return Machine(
        root=words.get("user") == "0",
        sudo=words.get("sudo", ""),
        account=words.get("account", ""),
        architecture=words.get("architecture", ""),
        boot_id=words.get("boot_id", ""),
        systemd=words.get("systemd") == "yes",
        os_id=words.get("ID", ""),
        os_version=words.get("VERSION_ID", ""),
        os_name=words.get("PRETTY_NAME", ""),
        cpu_level=cpu_level(words.get("flags", "").split()),
        addresses=tuple(addresses),
        unfinished=unfinished(lines),
    )


def unfinished(lines: Sequence[str]) -> tuple[str, ...]:
    """Read the output of `UNFINISHED`."""
    words = [line.split() for line in lines if line.startswith("unfinished ")]
    return tuple(dict.fromkeys(word[2] for word in words if len(word) == 3))


def cpu_level(flags: Sequence[str]) -> str:
    """``v3``, ``v2`` or ``v1``: the highest x86-64 level whose flags are all there."""
    if set(flags) >= V3_FLAGS:
        return "v3"
    return "v2" if set(flags) >= V2_FLAGS else "v1"


def _address(text: str) -> list[IPv4Address]:
    try:
        return [IPv4Address(text.partition("/")[0])]
    except AddressValueError:
        return []


def _unquote(text: str) -> str:
    try:
        return " ".join(shlex.split(text))
    except ValueError:
        return text
