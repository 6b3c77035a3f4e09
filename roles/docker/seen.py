"""The command that shows what a host has of Docker, and its parser. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from roles.base.apt import PREFERENCES
from roles.base.units import DOCKER as CLIENT
from roles.base.units import SECONDS
from roles.docker.daemon import FILE, RECORD

DISTRIBUTION = ("docker.io", "docker-cli", "docker-buildx")
DOCKER = ("docker-ce", "docker-ce-cli", "containerd.io", "docker-buildx-plugin")
OLD = ("docker-engine", "lxc-docker", "podman-docker")
"""What cannot be beside Docker: its packages of old, and podman under Docker's name."""
TOOLKIT = ("nvidia-container-toolkit", "nvidia-container-toolkit-base", "libnvidia-container-tools", "libnvidia-container1")

PIN = f"{PREFERENCES}/gpuquilt-nvidia-container-toolkit"
"""Where we keep the toolkit at its version; where it is not, a toolkit that is there is not by us."""

# Of what two describe, Docker takes the one of the folder that it reads last. Source: pkg/cdi/spec-dirs.go of
# github.com/cncf-tags/container-device-interface.
SPECIFICATIONS = r"""all=
for file in /etc/cdi/*.json /etc/cdi/*.yaml /run/cdi/*.json /run/cdi/*.yaml; do
    grep -qE 'kind.?:[[:space:]]*.?nvidia\.com/gpu' "$file" || continue
    echo "cdi $file"
    grep -qE 'name.?:[[:space:]]*.?all([^[:alnum:]_-]|$)' "$file" && all=$file
done
[ -c /dev/nvidia-uvm ] && [ -n "$all" ] && ! grep -qE '/dev/nvidia-uvm([^-]|$)' "$all" && echo "incomplete $all"
"""

# The daemon is asked only where it runs: a question to its socket would start it.
COMMAND = rf"""
exec 2>/dev/null
export LC_ALL=C PATH=$PATH:/usr/sbin:/sbin
. /etc/os-release && echo "system $ID $VERSION_CODENAME"
dpkg-query -W -f 'package ${{Package}} ${{Version}} ${{db:Status-Status}}\n' {" ".join((*DISTRIBUTION, *DOCKER, *OLD, *TOOLKIT))}
apt-cache policy {" ".join(DISTRIBUTION)} |
    awk '/^[^ ]+:$/ {{ name = $1 }} $1 == "Candidate:" && $2 != "(none)" {{ sub(":", "", name); print "candidate", name, $2 }}'
snap list docker | awk '$1 == "docker" {{ print "snap", $2 }}'
systemctl show docker.service --timestamp=us+utc --property=ActiveState,UnitFileState,ExecMainStartTimestamp |
    while IFS='=' read -r key value; do
        case $key in
        ActiveState) echo "state $value" ;;
        UnitFileState) echo "boot $value" ;;
        ExecMainStartTimestamp) [ -n "$value" ] && echo "started $(date --date="$value" +%s.%N)" ;;
        esac
    done
{{
    pid=$(systemctl show docker.service --property=MainPID --value)
    [ "${{pid:-0}}" -gt 0 ] && tr '\0' '\n' </proc/$pid/cmdline
    grep -h '^[[:space:]]*DOCKER_OPTS=' /etc/default/docker
    systemctl show docker.service --property=ExecStart
}} | grep -oE -- '(^|[ "=])(-H|--[a-z][a-z-]*)' | tr -d ' "=' | sort -u | sed 's/^/flag /'
[ -e {FILE} ] && stat --dereference --format='changed %.9Z' {FILE} && sed 's/^/file /' {FILE}
sed 's/^/record /' {RECORD}
sed 's/^/pin /' {PIN}
[ -e /var/lib/docker/swarm/docker-state.json ] && echo swarm
[ -x {CLIENT} ] && echo client
[ -e /proc/driver/nvidia/version ] && echo driver
{SPECIFICATIONS}
if systemctl is-active --quiet docker.service; then
    timeout {SECONDS} docker info --format 'info {{{{json .}}}}'
    running=$(timeout {SECONDS} docker ps --quiet --no-trunc)
    line='container {{{{.Id}}}} {{{{.Name}}}} {{{{.HostConfig.Runtime}}}} {{{{json .HostConfig.DeviceRequests}}}}'
    [ -z "$running" ] || timeout {SECONDS} docker inspect --format "$line" $running
    for id in $running; do
        sed -n "s/^DeviceAllow=\(..*\)/allow $id \1/p" /run/systemd/transient/docker-$id.scope.d/50-DeviceAllow.conf
    done
fi
true
"""


@dataclass(frozen=True)
class Container:
    """A container that runs.

    :param gpu: it was given a GPU of NVIDIA
    :param allowed: the devices that systemd lets it have, in systemd's words; empty where systemd does not say
    """

    name: str
    gpu: bool = False
    allowed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Seen:
    """What a host shows.

    :param distribution: debian or ubuntu
    :param codename: of its release, e.g. trixie
    :param packages: installed package of ours or of what cannot be beside it → version, in dpkg's words
    :param candidates: package of the distribution's Docker → the version that apt would install
    :param snap: version of the Docker that came as a snap; empty where there is none
    :param state: of docker.service, in systemd's words
    :param boot: whether it is started at boot, in systemd's words
    :param started: when the daemon was started, seconds since 1970; 0 where it does not run
    :param changed: when daemon.json was changed last, likewise; 0 where there is none
    :param flags: options that the daemon is started with, without their values
    :param text: daemon.json; None where there is none
    :param record: what we have written down of what is ours in it
    :param pin: our preferences for the toolkit; empty where there are none
    :param swarm: it is a node of a swarm
    :param client: the program is where units of ours start it from
    :param driver: NVIDIA's driver is loaded
    :param specifications: the CDI specifications of NVIDIA's GPUs that are there
    :param incomplete: the one of them by which a container gets all GPUs, if it lacks /dev/nvidia-uvm, which is there; else empty
    :param info: what the daemon says of itself; empty where it does not answer
    """

    distribution: str = ""
    codename: str = ""
    packages: Mapping[str, str] = field(default_factory=dict)
    candidates: Mapping[str, str] = field(default_factory=dict)
    snap: str = ""
    state: str = ""
    boot: str = ""
    started: float = 0
    changed: float = 0
    flags: frozenset[str] = frozenset()
    text: str | None = None
    record: str = ""
    pin: str = ""
    swarm: bool = False
    client: bool = False
    driver: bool = False
    specifications: tuple[str, ...] = ()
    incomplete: str = ""
    info: Mapping[str, Any] = field(default_factory=dict)
    containers: tuple[Container, ...] = ()

    @property
    def source(self) -> str:
        """Where the Docker that is there came from, as the setting `docker_engine` names it; none: there is none."""
        if "docker-ce" in self.packages:
            return "docker"
        return "distribution" if "docker.io" in self.packages else "none"

    @property
    def version(self) -> str:
        """Of the Docker that is installed, in dpkg's words, or in its own where no package brought it; empty where none is."""
        return self.packages.get("docker-ce") or self.packages.get("docker.io") or self.info.get("ServerVersion", "")

    @property
    def live(self) -> bool:
        """Containers survive the daemon, as it runs now."""
        return self.info.get("LiveRestoreEnabled") is True


def parse(lines: Sequence[str]) -> Seen:
    """Read the output of `COMMAND`; lines that it does not know are passed over."""
    found: dict[str, list[str]] = {}
    for line in lines:
        word, _, rest = line.partition(" ")
        found.setdefault(word, []).append(rest)

    def first(word: str) -> str:
        return found.get(word, [""])[0].strip()

    system = [*first("system").split(), "", ""]
    packages = [words for words in map(str.split, found.get("package", [])) if words[2:] == ["installed"]]
    candidates = [words for words in map(str.split, found.get("candidate", [])) if len(words) == 2]
    text = "\n".join(found.get("file", [])) if "changed" in found else None
    info = _info(first("info"))
    return Seen(
        distribution=system[0],
        codename=system[1],
        packages={words[0]: words[1] for words in packages},
        candidates={words[0]: words[1] for words in candidates},
        snap=first("snap"),
        state=first("state"),
        boot=first("boot"),
        started=_number(first("started")),
        changed=_number(first("changed")),
        flags=frozenset(found.get("flag", [])),
        text=text,
        record="\n".join(found.get("record", [])),
        pin="".join(f"{line}\n" for line in found.get("pin", [])),
        # Of one that does not run, its file tells; one that runs may keep it elsewhere.
        swarm="swarm" in found or (info.get("Swarm") or {}).get("LocalNodeState", "inactive") != "inactive",
        client="client" in found,
        driver="driver" in found,
        specifications=tuple(found.get("cdi", [])),
        incomplete=first("incomplete"),
        info=info,
        containers=tuple(_containers(found.get("container", []), found.get("allow", []))),
    )


def _number(word: str) -> float:
    try:
        return float(word)
    except ValueError:
        return 0


def _info(text: str) -> Mapping[str, Any]:
    """What the daemon said; without an answer of it, the client speaks of itself alone."""
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) and found.get("ServerVersion") else {}


def _containers(lines: Sequence[str], allowed: Sequence[str]) -> list[Container]:
    devices: dict[str, list[str]] = {}
    for line in allowed:
        identity, _, device = line.partition(" ")
        devices.setdefault(identity, []).append(device)
    found = []
    for line in lines:
        words = line.split(" ", 3)
        if len(words) == 4:
            identity, name, runtime, requests = words
            gpu = runtime == "nvidia" or "gpu" in requests
            found.append(Container(name.removeprefix("/"), gpu, tuple(devices.get(identity, ()))))
    return found
