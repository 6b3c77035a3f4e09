"""What this computer shows of a sandbox and of itself: the question as one shell script, and its answer parsed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network

from roles.base.apt import Source, parse_deb822, parse_one_line
from roles.sandbox import apt
from roles.sandbox.inputs import MIRROR, MODEL, SOURCES
from roles.sandbox.layout import Layout

PACKAGES = {
    "systemd-nspawn": "systemd-container",
    "mmdebstrap": "mmdebstrap",
    "nft": "nftables",
    "ip": "iproute2",
    "git": "git",
    "ssh-keygen": "openssh-client",
}
"""Command → the Debian package that brings it."""

REMEMBERED = "/run/gpuquilt-sandbox"
"""The values that kernel settings had before the first sandbox; like those settings it does not survive a reboot."""

TABLES = "gpuquilt_sandbox_"
"""What the nftables tables of all sandboxes begin with."""


@dataclass(frozen=True)
class Route:
    """A network that is reached through an interface."""

    interface: str
    network: IPv4Network


@dataclass(frozen=True)
class Running:
    """A process of systemd-nspawn that is ours: its command line names our machine and our folder."""

    pid: int
    name: str
    directory: str


@dataclass(frozen=True)
class Remains:
    """What has to go before a machine can start anew."""

    processes: tuple[Running, ...]
    groups: tuple[str, ...]
    cables: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.processes or self.groups or self.cables)


@dataclass(frozen=True)
class SeenMachine:
    """One machine that exists, running or not."""

    name: str
    mounted: bool = False
    cable: bool = False
    """The host's end of its cable exists."""
    plugged: bool = False
    """... and is plugged into our bridge."""


@dataclass(frozen=True)
class Seen:
    """One look. Lists are in the order of the script's output."""

    user: int = -1
    release: tuple[str, str, str] = ("", "", "")
    """ID, VERSION_ID and VERSION_CODENAME of /etc/os-release."""
    booted_with_systemd: bool = False
    missing_packages: tuple[str, ...] = ()
    routes: tuple[Route, ...] = ()
    sources: tuple[Source, ...] = ()
    apt_options: tuple[str, ...] = ()
    nameservers: tuple[str, ...] = ()
    kernel: dict[str, int] = field(default_factory=dict)
    """Kernel setting → value."""
    remembered: dict[str, int] = field(default_factory=dict)
    """Kernel setting → value before the first sandbox."""
    free: dict[str, tuple[str, int]] = field(default_factory=dict)
    """"state" and "cache" → file system and its free space in MiB."""
    state_entries: frozenset[str] = frozenset()
    cache_entries: frozenset[str] = frozenset()
    description: str = ""
    """The content of machines.json."""
    ssh: dict[str, str] = field(default_factory=dict)
    """File in the folder of the keys → content; of private keys only that they are there."""
    bases: frozenset[str] = frozenset()
    has_mirror: bool = False
    has_model: bool = False
    has_bridge: bool = False
    table: tuple[str, ...] = ()
    """The lines of our nftables table; empty: there is none."""
    other_sandboxes: tuple[str, ...] = ()
    """The tables of other sandboxes."""
    other_bridges: tuple[str, ...] = ()
    """All bridges of this computer but ours."""
    running: tuple[Running, ...] = ()
    names: frozenset[str] = frozenset()
    """The machines of the settings, and those that have a folder."""
    cables: tuple[str, ...] = ()
    """Interfaces that our machines left or use."""
    mounts: tuple[str, ...] = ()
    """Mount points below the state folder."""
    cache_users: tuple[str, ...] = ()
    """Mount points of other sandboxes that stand on a base in our cache."""
    groups: tuple[str, ...] = ()
    """Our control groups, where systemd does not keep them."""
    machines: dict[str, SeenMachine] = field(default_factory=dict)

    def remains_of(self, names: Iterable[str]) -> Remains:
        """What runs of the machines, or was left behind when they were killed."""
        names = frozenset(names)
        return Remains(
            processes=tuple(running for running in self.running if running.name in names),
            groups=tuple(group for group in self.groups if group.rpartition("/")[2] in names),
            cables=tuple(cable for cable in self.cables if cable.removeprefix("vb-") in names),
        )

    @property
    def mirrors(self) -> apt.Mirrors | None:
        return apt.find_mirrors(self.sources, self.release[2])


HIERARCHIES = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/systemd")
"""Where the control groups of a machine are made if this computer was not booted with systemd."""

KERNEL = {"net.ipv4.ip_forward": 1, "fs.inotify.max_user_instances": 8192}
"""Kernel settings that the machines need, and how much at least: routing to the package mirror, and systemd's watches."""


def look(layout: Layout) -> str:
    """The script. It changes nothing, and works where nothing is installed yet."""
    quoted = shlex.quote
    tools = " ".join(f"{tool}={package}" for tool, package in PACKAGES.items())
    commits = " ".join(f"{source.commit}^{{tree}}" for source in SOURCES)
    machines = "\n".join(f"machine {machine.name}" for machine in layout.machines)
    return f"""state={quoted(layout.state)} cache={quoted(layout.cache)} bridge={layout.bridge}
say() {{ printf '@%s\\n' "$1"; }}
say user; id -u
say release; (. /etc/os-release; echo "$ID"; echo "$VERSION_ID"; echo "$VERSION_CODENAME")
say systemd; [ ! -d /run/systemd/system ] || echo yes
say missing; for tool in {tools}; do command -v "${{tool%=*}}" >/dev/null || echo "${{tool#*=}}"; done
say routes; cat /proc/net/route
say one-line; cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null
say deb822; for file in /etc/apt/sources.list.d/*.sources; do cat "$file" 2>/dev/null; echo; done
say options; apt-config dump 2>/dev/null
say nameservers
if [ -e /run/systemd/resolve/resolv.conf ]; then cat /run/systemd/resolve/resolv.conf; else cat /etc/resolv.conf; fi
say kernel; for key in {" ".join(KERNEL)}; do echo "$key $(cat "/proc/sys/$(echo "$key" | tr . /)")"; done
say remembered; (cd {REMEMBERED} 2>/dev/null && for key in *; do echo "$key $(cat "$key")"; done) 2>/dev/null
say free
for which in state cache; do
  eval "folder=\\$$which"
  while [ ! -d "$folder" ]; do folder=$(dirname "$folder"); done
  echo "$which $(df --portability --block-size=1M "$folder" | awk 'NR == 2 {{print $4, $6}}')"
done
say state; ls -A "$state" 2>/dev/null
say cache; ls -A "$cache" 2>/dev/null
say description; cat "$state/machines.json" 2>/dev/null
for file in "$state"/ssh/*; do
  if [ -s "$file" ]; then
    say "ssh ${{file##*/}}"
    case $file in *.pub | */known_hosts) cat "$file" ;; esac
  fi
done
say bases; ls "$cache/base" 2>/dev/null
say inputs
[ ! -e "$cache/inputs/{MODEL.file}" ] || echo model
for commit in {commits}; do git -C "$cache/inputs/{MIRROR}" cat-file -e "$commit" 2>/dev/null || echo "lacks $commit"; done
say bridge; [ ! -d "/sys/class/net/$bridge/bridge" ] || echo yes
say bridges; for path in /sys/class/net/*/bridge; do [ ! -d "$path" ] || basename "${{path%/bridge}}"; done
say table; nft list table ip {layout.table} 2>/dev/null
say tables; nft list tables ip 2>/dev/null
say running
for comm in $(grep -lxF systemd-nspawn /proc/[0-9]*/comm 2>/dev/null); do
  process=${{comm%/comm}}
  tr '\\0' '\\n' <"$process/cmdline" | awk -v pid="${{process#/proc/}}" '
    /^--machine=/ {{ name = substr($0, 11) }} /^--directory=/ {{ folder = substr($0, 13) }} END {{ print pid, name, folder }}'
done 2>/dev/null
say folders; ls "$state/machines" 2>/dev/null
say cables; for path in /sys/class/net/vb-{layout.prefix}-*; do [ ! -e "$path" ] || echo "${{path##*/}}"; done
say mounts; cat /proc/self/mounts
say groups; for path in {" ".join(f"{path}/{layout.prefix}-*" for path in HIERARCHIES)}; do [ ! -d "$path" ] || echo "$path"; done
say machines
machine() {{
  [ -d "$state/machines/$1/upper" ] || return 0
  line=$1
  if [ -e "/sys/class/net/vb-$1" ]; then line="$line cable"; fi
  if [ "$(basename "$(readlink "/sys/class/net/vb-$1/master")")" = "$bridge" ]; then line="$line plugged"; fi
  echo "$line"
}}
{machines}
true"""


def parse(output: Iterable[str], layout: Layout) -> Seen:
    """What the script printed → what was seen."""
    sections = _sections(output)

    def lines(name: str) -> list[str]:
        return [line for line in sections.get(name, []) if line]

    def numbers(name: str) -> dict[str, int]:
        pairs = (line.split() for line in lines(name))
        return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}

    release = [*lines("release"), "", "", ""][:3]
    tables = [line.split()[-1] for line in lines("tables")]
    mounts = [line.split() for line in lines("mounts")]
    ours = f"{layout.state}/machines/"
    mounted = tuple(mount[1] for mount in mounts if mount[1].startswith(ours))
    names = {machine.name for machine in layout.machines} | set(lines("folders"))
    lower = f"lowerdir={layout.cache}/base/"
    return Seen(
        user=int((lines("user") or ["-1"])[0]),
        release=(release[0], release[1], release[2]),
        booted_with_systemd=bool(lines("systemd")),
        missing_packages=tuple(lines("missing")),
        routes=tuple(_routes(lines("routes"))),
        sources=(
            *parse_deb822("\n".join(sections.get("deb822", []))),
            *parse_one_line("\n".join(sections.get("one-line", []))),
        ),
        apt_options=tuple(apt.guest_options(lines("options"))),
        nameservers=tuple(_nameservers(lines("nameservers"))),
        kernel=numbers("kernel"),
        remembered=numbers("remembered"),
        free={which: (where, int(free)) for which, free, where in (line.split(maxsplit=2) for line in lines("free"))},
        state_entries=frozenset(lines("state")),
        cache_entries=frozenset(lines("cache")),
        description="\n".join(sections.get("description", [])),
        ssh={name[4:]: "\n".join(content) for name, content in sections.items() if name.startswith("ssh ")},
        bases=frozenset(lines("bases")),
        has_mirror="inputs" in sections and not any(line.startswith("lacks") for line in lines("inputs")),
        has_model="model" in lines("inputs"),
        has_bridge=bool(lines("bridge")),
        table=tuple(line.strip() for line in lines("table")),
        other_sandboxes=tuple(name for name in tables if name.startswith(TABLES) and name != layout.table),
        other_bridges=tuple(name for name in lines("bridges") if name != layout.bridge),
        running=tuple(_running(lines("running"), layout)),
        names=frozenset(names),
        cables=tuple(cable for cable in lines("cables") if cable.removeprefix("vb-") in names),
        mounts=mounted,
        cache_users=tuple(mount[1] for mount in mounts if lower in mount[3] and mount[1] not in mounted),
        groups=tuple(group for group in lines("groups") if group.rpartition("/")[2] in names),
        machines={machine.name: machine for machine in _machines(lines("machines"), layout, mounted)},
    )


def _sections(output: Iterable[str]) -> dict[str, list[str]]:
    sections: dict[str, list[str]] = {}
    current: list[str] = []
    for line in output:
        if line.startswith("@"):
            current = sections.setdefault(line[1:].strip(), [])
        else:
            current.append(line)
    return sections


def _routes(lines: Iterable[str]) -> Iterable[Route]:
    """/proc/net/route: interface, destination and mask in little-endian hexadecimal; the default route is left out."""
    for line in lines:
        words = line.split()
        if len(words) > 7 and re.fullmatch(r"[0-9A-F]{8}", words[1]) and words[7] != "00000000":
            address, mask = (IPv4Address(bytes.fromhex(word)[::-1]) for word in (words[1], words[7]))
            yield Route(words[0], IPv4Network(f"{address}/{mask}"))


def _nameservers(lines: Iterable[str]) -> Iterable[str]:
    """Those that another machine can ask: on a loopback address only this computer can."""
    for line in lines:
        words = line.split()
        is_ipv4 = len(words) >= 2 and words[0] == "nameserver" and re.fullmatch(r"[0-9.]+", words[1])
        if is_ipv4 and not IPv4Address(words[1]).is_loopback:
            yield words[1]


def _running(lines: Iterable[str], layout: Layout) -> Iterable[Running]:
    for line in lines:
        pid, *words = line.split()
        if len(words) != 2:
            continue
        name, directory = words
        if name.startswith(f"{layout.prefix}-") and directory == f"{layout.state}/machines/{name}/root":
            yield Running(int(pid), name, directory)


def _machines(lines: Iterable[str], layout: Layout, mounted: tuple[str, ...]) -> Iterable[SeenMachine]:
    for line in lines:
        name, *words = line.split()
        yield SeenMachine(
            name=name,
            mounted=f"{layout.state}/machines/{name}/root" in mounted,
            cable="cable" in words,
            plugged="plugged" in words,
        )
