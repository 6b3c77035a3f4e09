"""What is asked of a machine, and how its answer is read. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from roles.cluster.banner import Device

PROPERTIES = "ActiveState,SubState,Result,UnitFileState,NRestarts,InvocationID"

VERSION = re.compile(r"\((?:build \d+, commit )?(?P<commit>[0-9a-f]{7,40})\)")
"""In ``version: 1 (e3a74b299)``, later ``version: 0.0.1 (build 1, commit 0c1e57098)``."""


DRIVER_COMMAND = r"""
exec 2>/dev/null
PATH=$PATH:/usr/sbin:/sbin
echo "Loaded=$(cat /sys/module/nvidia/version)"
[ -d /sys/module/nouveau ] && echo Nouveau=
library=$(ldconfig -p | sed -n '/libcuda\.so\.1 .*x86-64/s/.*=> //p' | head -n 1)
[ -n "$library" ] && echo "Library=$(readlink -f "$library")"
ls /boot | sed -n '/\.old$/d; s/^vmlinuz-/Kernel=/p' | sort -V | tail -n 1
find /lib/modules/ -name 'nvidia*.ko*' | while read -r module; do
    echo "Module=$module $(modinfo -F version "$module")"
done
sed 's/^/Pin=/' /etc/apt/preferences.d/*gpuquilt-nvidia
[ -d /sys/module/nvidia ] && timeout --kill-after=5 30 nvidia-smi -L | sed 's/^/Gpu=/'
true
"""
"""Shows NVIDIA's driver; see `driver`."""

_MODULE = re.compile(r"/lib/modules/([^/]+)/\S+ ([0-9]{3}(?:\.[0-9]+)+)")


def container_of(unit: str) -> str:
    """What the container of a unit is called."""
    return f"gpuquilt-{unit.removesuffix('.service')}"


def service_command(unit: str) -> str:
    """Shows a unit and the process that does its work; see `service`.

    Of a unit that is a `docker run` that is the first process of its container, which Docker has started and not systemd.
    """
    return f"""
systemctl show {unit} --property={PROPERTIES}
pid=$(systemctl show {unit} --property=MainPID --value)
case $(readlink /proc/$pid/exe) in
*/docker | */docker\\ *) pid=$(docker inspect --format '{{{{.State.Pid}}}}' {container_of(unit)} 2>/dev/null || echo 0) ;;
esac
echo "MainPID=$pid"
[ "$pid" -gt 0 ] || exit 0
awk '/^NSpid:/ && NF > 2 {{ print "Contained=" }}' /proc/$pid/status
echo "Program=$(readlink /proc/$pid/exe)"
echo "Digest=$(sha256sum </proc/$pid/exe | cut -c -64)"
tr '\\0' '\\n' </proc/$pid/cmdline | sed 's/^/Argument=/'
sed -n 's|^[^/]*/|Mapped=/|p' /proc/$pid/maps | sort -u
find /proc/$pid/fd -lname '/*' -printf 'Opened=%l\\n' 2>/dev/null
echo "Started=$(date -d "$(TZ=UTC systemctl show {unit} --property=ExecMainStartTimestamp --value)" +%s)"
"""


@dataclass(frozen=True)
class Service:
    """A unit and the process that does its work.

    :param state: systemd's ActiveState and SubState, e.g. ``active/running``
    :param result: why it ended the last time, in systemd's words
    :param enabled: it starts at boot
    :param pid: 0 when it does not run
    :param contained: it sees other processes than the host's, as in a container
    :param restarts: how often systemd started it again since somebody last did
    :param invocation: systemd's name for this start
    :param program: the file that it runs; its end says when that file is deleted
    :param digest: SHA-256 of that file
    :param arguments: its command line, program first
    :param mapped: every file that it has mapped into its memory; the end of a name says when that file is deleted
    :param opened: likewise every file that it has open
    :param started: when it was started, in seconds since 1970
    """

    state: str = ""
    result: str = ""
    enabled: bool = False
    pid: int = 0
    contained: bool = False
    restarts: int = 0
    invocation: str = ""
    program: str = ""
    digest: str = ""
    arguments: tuple[str, ...] = ()
    mapped: frozenset[str] = frozenset()
    opened: frozenset[str] = frozenset()
    started: int = 0

    @property
    def running(self) -> bool:
        return self.state == "active/running" and self.pid > 0

    def option(self, *names: str) -> str | None:
        """The value of an option on its command line; of several the last, as llama.cpp takes it."""
        values = [value for name, value in zip(self.arguments, self.arguments[1:], strict=False) if name in names]
        return values[-1] if values else None

    def serves(self, path: str, changed: int) -> bool:
        """Whether what it has read from a path is the file that is there now.

        :param path: without symbolic links
        :param changed: when that file was changed last, or put there, in seconds since 1970
        """
        held = self.mapped | self.opened
        if f"{path} (deleted)" in held:
            return False
        # It may have read the file into its memory, or onto other devices, and closed it: then its age must tell.
        return path in held or changed <= self.started


def service(text: str) -> Service:
    """Read the answer to `service_command`."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        key, _, value = line.partition("=")
        found.setdefault(key, []).append(value)

    def one(key: str) -> str:
        return found.get(key, [""])[0]

    return Service(
        state=f"{one('ActiveState')}/{one('SubState')}",
        result=one("Result"),
        enabled=one("UnitFileState") == "enabled",
        pid=int(one("MainPID") or 0),
        contained="Contained" in found,
        restarts=int(one("NRestarts") or 0),
        invocation=one("InvocationID"),
        program=one("Program"),
        digest=one("Digest"),
        arguments=tuple(found.get("Argument", [])),
        mapped=frozenset(found.get("Mapped", [])),
        opened=frozenset(found.get("Opened", [])),
        started=int(one("Started") or 0),
    )


SOCKETS_COMMAND = "ss -Htanpe"


@dataclass(frozen=True)
class Socket:
    """A TCP socket.

    :param state: in the words of ss: LISTEN, ESTAB, CLOSE-WAIT, …
    :param local: address and port
    :param peer: address and port
    :param user: the number of the user that owns it
    :param pids: the processes that hold it; none when no process has accepted the connection yet
    """

    state: str
    local: str
    peer: str
    user: int = 0
    pids: frozenset[int] = frozenset()

    @property
    def port(self) -> str:
        return self.local.rpartition(":")[2]


def sockets(text: str) -> list[Socket]:
    """Read the answer to `SOCKETS_COMMAND`."""
    return [_socket(line) for line in text.splitlines() if len(line.split()) >= 5]


def _socket(line: str) -> Socket:
    state, _, _, local, peer = line.split()[:5]
    user = re.search(r"\buid:(\d+)", line)
    return Socket(
        state=state,
        local=_plain(local),
        peer=_plain(peer),
        user=int(user[1]) if user else 0,
        pids=frozenset(int(pid) for pid in re.findall(r"\bpid=(\d+)", line)),
    )


def _plain(end: str) -> str:
    """Address and port, without the name of an interface that may stand between them: ``198.18.77.11%eth0:50052``."""
    return re.sub(r"%[^:\]]+", "", end)


def digests(text: str) -> dict[str, str]:
    """Path → SHA-256, from the output of sha256sum; a leading ``./`` is taken off the path."""
    lines = [line.partition("  ") for line in text.splitlines()]
    return {path.removeprefix("./"): digest.removeprefix("\\") for digest, _, path in lines if path}


def strange(devices: Sequence[Device], planned: str, asked: Collection[str]) -> list[Device]:
    """The devices of another backend, which a worker serves only where the inventory asks for them by name.

    :param planned: the backend
    :param asked: names of devices, e.g. CPU
    """
    return [device for device in devices if device.backend != planned and device.name not in asked]


def version_names(text: str, commit: str) -> bool:
    """Whether the output of a program's ``--version`` names a commit."""
    match = VERSION.search(text)
    return match is not None and commit.startswith(match["commit"])


@dataclass(frozen=True)
class Guard:
    """What an nftables table does.

    :param addresses: the source addresses that it names
    :param ports: the TCP ports that it names
    :param drops: there is something that it drops, on the way of packets
    """

    addresses: frozenset[str] = frozenset()
    ports: frozenset[int] = frozenset()
    drops: bool = False


def guard(text: str) -> Guard:
    """Read the output of ``nft -j list table``; empty when there is no such table."""
    if not text.strip():
        return Guard()
    objects: list[dict[str, Any]] = json.loads(text)["nftables"]
    sets = {found["set"]["name"]: found["set"].get("elem", []) for found in objects if "set" in found}
    rules = [statement for found in objects if "rule" in found for statement in found["rule"]["expr"]]
    hooked = any("hook" in found["chain"] for found in objects if "chain" in found)
    matches = [statement["match"] for statement in rules if "match" in statement]
    return Guard(
        addresses=frozenset(map(str, _values(matches, sets, "ip", "saddr"))),
        ports=frozenset(int(port) for port in _values(matches, sets, "tcp", "dport") if str(port).isdigit()),
        drops=hooked and any("drop" in statement for statement in rules),
    )


def _values(matches: Sequence[dict[str, Any]], sets: dict[str, list[Any]], protocol: str, name: str) -> Iterator[str | int]:
    for match in matches:
        if match["left"] == {"payload": {"protocol": protocol, "field": name}}:
            yield from _elements(match["right"], sets)


def _elements(value: Any, sets: dict[str, list[Any]]) -> Iterator[str | int]:
    """Every element of a set, named or written out; a prefix or a range as nftables' JSON shows it."""
    if isinstance(value, str) and value.startswith("@"):
        value = {"set": sets.get(value[1:], [])}
    if isinstance(value, dict) and "set" in value:
        for element in value["set"]:
            yield from _elements(element, sets)
    elif isinstance(value, dict) and "elem" in value:
        yield from _elements(value["elem"]["val"], sets)
    else:
        yield value if isinstance(value, str | int) else json.dumps(value)


@dataclass(frozen=True)
class Driver:
    """NVIDIA's driver on a host.

    :param loaded: version of the module that runs; empty where none does
    :param library: version of libcuda.so.1; empty where there is none
    :param kernel: the newest that is installed; empty where none is, as in a container
    :param modules: kernel and version of each module that is there to be loaded
    :param nouveau: the kernel's own driver is loaded
    :param pins: the text of our preferences of apt
    :param gpus: the GPUs that the driver answers for
    """

    loaded: str = ""
    library: str = ""
    kernel: str = ""
    modules: frozenset[tuple[str, str]] = frozenset()
    nouveau: bool = False
    pins: str = ""
    gpus: tuple[str, ...] = ()

    def built_for(self, kernel: str) -> bool:
        """Whether a module of the libraries' version is there for a kernel."""
        return (kernel, self.library) in self.modules


def driver(text: str) -> Driver:
    """Read the output of `DRIVER_COMMAND`."""
    lines = [line.partition("=")[::2] for line in text.splitlines()]

    def every(key: str) -> list[str]:
        return [value.strip() for name, value in lines if name == key]

    return Driver(
        loaded="".join(every("Loaded")),
        library="".join(every("Library")).rpartition("libcuda.so.")[2],
        kernel="".join(every("Kernel")),
        # The kernel has modules of its own that are called so, which have no version.
        modules=frozenset((found[1], found[2]) for line in every("Module") if (found := _MODULE.fullmatch(line))),
        nouveau="Nouveau" in dict(lines),
        pins="\n".join(every("Pin")),
        gpus=tuple(line for line in every("Gpu") if line.startswith("GPU ")),
    )
