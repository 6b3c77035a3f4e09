"""What is wrong with a host's Docker, and what it needs. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from roles.base.apt import Change, Repository
from roles.base.units import DOCKER as CLIENT
from roles.docker import daemon
from roles.docker.daemon import FILE, Options
from roles.docker.seen import DISTRIBUTION, DOCKER, OLD, TOOLKIT, Container, Seen
from roles.docker.settings import REFRESHES, Settings
from roles.gpus.catalog import numbers

CDI = (25,)
"""The first Docker that can use CDI. Source: docs.docker.com/reference/cli/dockerd, "Enable CDI devices"."""
CDI_BY_DEFAULT = (28, 2)
"""The first that does so unasked, and lists the devices. Source: docs.docker.com/engine/release-notes/28, 28.2.0."""

BUILDS = (20, 10)
"""The first whose `docker run` knows --pull, and whose own BuildKit needs no frontend from a registry for `RUN --mount`. Source:
docs.docker.com/engine/release-notes/20.10."""
OLD_RELEASES = frozenset({"bookworm"})
"""Releases whose own Docker cannot use CDI, for hosts where apt has no lists yet. Source: packages.debian.org/docker.io."""

BASE = "nvidia-container-toolkit-base"
"""All of the toolkit that CDI needs. The rest is the injection by a hook, behind systemd's back: with that a container loses its
GPU at the next daemon-reload (github.com/NVIDIA/nvidia-container-toolkit/issues/48)."""

DATA_ROOT = "/var/lib/docker"
"""Where Docker keeps everything, unless told otherwise."""
GPU = "nvidia.com/gpu"
NVIDIA_MAJOR = 195
"""Of the device files of NVIDIA's GPUs. Source: Documentation/admin-guide/devices.txt of Linux."""


def version(words: str) -> tuple[int, ...]:
    """The version of Docker itself within that of a package: ``5:29.1.3-1~debian.13~trixie`` is 29.1.3."""
    found = re.match(r"(?:[0-9]+:)?([0-9][0-9.]*)", words)
    return numbers(found[1]) if found else ()


def decided(seen: Seen, settings: Settings, nvidia: bool) -> Settings:
    """The settings of a host that is to have Docker, with a source in place of `auto`: that of the Docker that is there, or else
    the distribution, unless its Docker is too old.

    :param nvidia: GPUs of NVIDIA are to compute here
    """
    if settings.engine != "auto":
        return settings
    to_come = "docker" if nvidia and _comes_too_old(seen) else "distribution"
    return settings.model_copy(update={"engine": to_come if seen.source == "none" else seen.source})


def needs_repository(seen: Seen, settings: Settings, nvidia: bool) -> bool:
    """Whether Docker's repository must be there by us; where nobody has asked for it, one that Docker came from is left alone."""
    if settings.engine == "auto" and seen.source == "docker":
        return False
    return decided(seen, settings, nvidia).engine == "docker" and seen.source != "distribution"


def _comes_too_old(seen: Seen) -> bool:
    candidate = seen.candidates.get("docker.io", "")
    return version(candidate) < CDI if candidate else seen.codename in OLD_RELEASES


def problems(seen: Seen, settings: Settings, nvidia: bool, runs: bool = False) -> list[str]:
    """Why Docker cannot be what is wanted here, one sentence each, without the host's name.

    :param settings: as `decided`
    :param nvidia: GPUs of NVIDIA are to compute here
    :param runs: containers of ours are to run here
    """
    found = []
    if settings.engine == "none" and seen.source == "none" and not (seen.snap or seen.info):
        found.append(
            'runtime = "docker" needs Docker, which is not there, and docker_engine = "none" forbids to install it: install'
            " Docker yourself, or take docker_engine out, and run again."
        )
    if settings.engine == "none" and runs and seen.info and not seen.client:
        found.append(
            f"its services start containers with {CLIENT}, which is not there: make that a link to its docker, and run again."
        )
    if settings.engine != "none" and seen.source == "none" and seen.info:
        found.append(
            f"it has Docker {seen.version}, which is of neither package docker.io nor docker-ce, and would be written over: set"
            ' docker_engine = "none" to use it as it is, or take it out, and run again.'
        )
    if seen.snap:
        found.append(
            f"it has Docker {seen.snap} as a snap, which cannot reach GPUs and has another daemon.json: take it out (snap remove"
            " docker; its images and containers go with it), and run again."
        )
    too_old = _too_old(seen, settings, nvidia) if nvidia or runs else []
    if settings.engine == "none":
        return found + too_old
    old = [name for name in OLD if name in seen.packages]
    if old:
        names = " ".join(old)
        found.append(f"Docker cannot be installed beside {names}: take it out (apt-get remove {names}), and run again.")
    if "--config-file" in seen.flags:
        found.append(
            f"its dockerd is started with --config-file, so that it does not read {FILE}: take that out of its unit or of"
            " /etc/default/docker, and run again."
        )
    twice = _flags(seen, settings.options)
    if twice:
        names = " and ".join(twice)
        found.append(
            f"its dockerd is started with {names}, which docker_options says as well, and so would not start any more: take it"
            " out of one of them, and run again."
        )
    return [*found, *_file_problems(seen, settings, nvidia), *too_old]


def _flags(seen: Seen, options: Options) -> list[str]:
    """What the daemon is started with and the options say as well; of what can be given several times, the flag has no s."""
    wanted = {flag for key in options for flag in (f"--{key}", f"--{key.removesuffix('s')}")}
    return sorted(seen.flags & (wanted | ({"-H"} if "hosts" in options else set())) - {"--feature"})


def _file_problems(seen: Seen, settings: Settings, nvidia: bool) -> list[str]:
    return _unreadable(seen, settings) or _hidden(seen, settings, nvidia)


def _hidden(seen: Seen, settings: Settings, nvidia: bool) -> list[str]:
    """Containers would go on where Docker does not look any more; stopped, they only have to be made anew."""
    present, merged = daemon.read(seen.text or ""), daemon.read(texts(seen, settings, nvidia).options or "")
    moved = []
    for key, word in (("data-root", "DockerRootDir"), ("storage-driver", "Driver")):
        wanted = merged.get(key, DATA_ROOT if key == "data-root" else None)
        if wanted and not daemon.same(present.get(key), merged.get(key)) and wanted != seen.info.get(word, wanted):
            moved.append(f"{key} {wanted} in place of {seen.info[word]}")
    if not moved or not seen.containers:
        return []
    return [
        f"docker_options want {' and '.join(moved)}, where Docker would not find the containers that run"
        f" ({', '.join(container.name for container in seen.containers)}), which would go on unseen: stop them (docker stop), and"
        " run again."
    ]


def _unreadable(seen: Seen, settings: Settings) -> list[str]:
    try:
        present = daemon.read(seen.text or "")
    except ValueError as error:
        return [f"its {FILE} cannot be read ({error}), and neither could Docker: correct it, and run again."]
    foreign = daemon.without(present, recorded(seen))
    names = ", ".join(daemon.conflicts(foreign, settings.options))
    return (
        [f"its {FILE} and docker_options want different things of {names}: take it out of one of them, and run again."]
        if names
        else []
    )


def _too_old(seen: Seen, settings: Settings, nvidia: bool) -> list[str]:
    least, purpose = (CDI, "give containers GPUs of NVIDIA by CDI") if nvidia else (BUILDS, "build images of llama.cpp")
    if seen.version:
        if version(seen.version) >= least:
            return []
        words = f"is too old to {purpose}, which takes {'.'.join(map(str, least))} or newer"
        if seen.source == "none":
            return [f"its Docker ({seen.version}) {words}: upgrade it, and run again."]
        if seen.source == "docker":
            return [
                f"its Docker ({seen.version}) {words}: upgrade it (apt-get update; apt-get install docker-ce docker-ce-cli"
                " containerd.io), and run again."
            ]
        return [
            f"its Docker ({seen.version}, the distribution's) {words}: take it out when its containers can be stopped (apt-get"
            " remove docker.io; images and containers stay in /var/lib/docker), set"
            ' docker_engine = "docker", and run again.'
        ]
    candidate = seen.candidates.get("docker.io", "")
    if nvidia and settings.engine == "distribution" and candidate and version(candidate) < CDI:
        return [too_old_to_come(candidate)]
    return []


def too_old_to_come(candidate: str) -> str:
    """Why the distribution's Docker is not installed where GPUs of NVIDIA are to compute."""
    return (
        f"the distribution's Docker ({candidate}) is too old to give containers GPUs of NVIDIA by CDI, which takes {CDI[0]} or"
        ' newer: set docker_engine = "docker".'
    )


def against(changes: Sequence[Change], nvidia: bool) -> list[str]:
    """What speaks against a simulated installation of Docker."""
    return [
        too_old_to_come(change.version)
        for change in changes
        if nvidia and change.package == "docker.io" and change.action == "install" and version(change.version) < CDI
    ]


def packages(seen: Seen, settings: Settings) -> list[str]:
    """The packages of Docker that are to be there: of the source that is there already, or else of the one that is wanted."""
    source = settings.engine if seen.source == "none" else seen.source
    if source == "docker":
        return list(DOCKER)
    # Debian 12 has the client in docker.io itself, and Ubuntu does.
    return ["docker.io", *(name for name in DISTRIBUTION[1:] if name in seen.candidates), "iptables"]


def repository(seen: Seen, settings: Settings) -> Repository:
    """Docker's own package repository, for the host's distribution."""
    uri = settings.repository or f"https://download.docker.com/linux/{seen.distribution}"
    key = settings.repository_key or f"{uri}/gpg"
    return Repository("docker", uri, (seen.codename,), ("stable",), key, settings.repository_fingerprint)


def toolkit_repository(settings: Settings) -> Repository:
    """The package repository of NVIDIA's container toolkit."""
    return Repository(
        "nvidia-container-toolkit",
        settings.toolkit_repository,
        ("/",),
        (),
        settings.toolkit_key,
        settings.toolkit_fingerprint,
    )


def preferences(settings: Settings) -> str:
    """The text that keeps the toolkit at one version, back from a newer one too."""
    return (
        "# Written by gpuquilt: the version is its setting docker_toolkit_version.\n"
        f"Package: {' '.join(sorted(TOOLKIT))}\nPin: version {toolkit_package(settings)}\nPin-Priority: 1001\n"
    )


def toolkit_package(settings: Settings) -> str:
    """The version that the toolkit's packages have, in dpkg's words."""
    return f"{settings.toolkit_version}-1"


def against_toolkit(changes: Sequence[Change], settings: Settings) -> list[str]:
    """What speaks against a simulated installation of the toolkit."""
    wanted = toolkit_package(settings)
    return [
        f"apt would install {change.package} {change.version} in place of {wanted}, which docker_toolkit_version wants: see which"
        " are to be had (apt-cache policy), and set it to one of them."
        for change in changes
        if change.package in TOOLKIT and change.action == "install" and change.version != wanted
    ]


def recorded(seen: Seen) -> Options:
    """What in daemon.json is by us; a record that nobody can read is none."""
    try:
        return daemon.read(seen.record)
    except ValueError:
        return {}


def is_recorded(seen: Seen, record: str) -> bool:
    """Whether our record says so already."""
    return bool(seen.record) and daemon.same(recorded(seen), daemon.read(record))


@dataclass(frozen=True)
class Texts:
    """What two files are to hold, None where there is to be none.

    :param options: daemon.json
    :param record: what of it is by us
    """

    options: str | None
    record: str | None


def texts(seen: Seen, settings: Settings, nvidia: bool) -> Texts:
    """What daemon.json and our record are to say.

    :raises ValueError: daemon.json cannot be read
    """
    present, before = daemon.read(seen.text or ""), recorded(seen)
    foreign = daemon.without(present, before)
    # What made containers get GPUs stays when a run plans for the processors alone: Docker would have to be restarted for it.
    cdi = (nvidia or daemon.uses_cdi(before)) and CDI <= version(seen.version) < CDI_BY_DEFAULT
    wanted = daemon.ours(foreign, settings.options, seen.flags, cdi, seen.swarm)
    merged = daemon.merge(present, before, wanted)
    return _texts(seen, present, merged, daemon.added(merged, foreign))


def texts_without_us(seen: Seen) -> Texts:
    """What daemon.json says once ours is taken out; it goes where nothing of it is left.

    :raises ValueError: daemon.json cannot be read
    """
    present, before = daemon.read(seen.text or ""), recorded(seen)
    found = _texts(seen, present, daemon.without(present, before), {})
    return Texts(found.options if not before or daemon.read(found.options or "") else None, None)


def _texts(seen: Seen, present: Options, merged: Options, ours: Options) -> Texts:
    options = seen.text if daemon.same(present, merged) else daemon.render(merged, seen.text or "")
    return Texts(options, daemon.render(ours, "") if ours else None)


def owed(seen: Seen) -> list[str]:
    """Why the daemon has to be restarted, or started, before it is what its files say."""
    if seen.state != "active":
        return [f"docker.service is {seen.state or 'not there'}"]
    found = [f"{FILE} is newer than the daemon that runs"] if seen.changed > seen.started else []
    return found + differences(seen)


def differences(seen: Seen) -> list[str]:
    """What daemon.json says and the daemon does not show."""
    try:
        options = daemon.read(seen.text or "")
    except ValueError:
        return []
    found = []
    features = options.get("features")
    if options.get("live-restore") is True and not seen.live:
        found.append("it does not keep containers running while it restarts (live-restore)")
    if isinstance(features, dict) and features.get("cdi") is True and not seen.info.get("CDISpecDirs"):
        found.append("it does not use CDI")
    runtimes = options.get("runtimes")
    if isinstance(runtimes, dict):
        found += [f"it does not know the runtime {name}" for name in runtimes if name not in (seen.info.get("Runtimes") or {})]
    return [f"{reason}, though {FILE} says so" for reason in found]


def ends_containers(reasons: str) -> str:
    """Why the daemon was not restarted."""
    return (
        f"Docker has to be restarted ({reasons}), which would end the containers that run, because live-restore is off: run"
        " systemctl restart docker there when it suits, and run again."
    )


def ready(seen: Seen, ours: bool) -> bool:
    """Whether Docker can give a container a GPU of NVIDIA: by CDI, or by NVIDIA's own runtime.

    :param ours: containers of ours are to have it, which ask by CDI alone
    """
    if not ours and "nvidia" in (seen.info.get("Runtimes") or {}):
        return True
    return not seen.incomplete and _finds_gpus(seen)


def _finds_gpus(seen: Seen) -> bool:
    """Whether Docker knows of GPUs by CDI."""
    devices = seen.info.get("DiscoveredDevices") or []
    if any(device.get("Source") == "cdi" and str(device.get("ID")).startswith(f"{GPU}=") for device in devices):
        return True
    # Those before it use CDI and do not list the devices.
    lists = version(str(seen.info.get("ServerVersion", ""))) >= CDI_BY_DEFAULT
    return not lists and bool(seen.info.get("CDISpecDirs")) and bool(seen.specifications)


def unready(seen: Seen, ours: bool) -> str:
    """Why no container can get a GPU of NVIDIA, without the host's name; the parameters are those of `ready`."""
    if not seen.info:
        return "Docker does not answer: see journalctl -u docker there."
    neither = "" if ours else ", and does not know the runtime nvidia"
    if not seen.info.get("CDISpecDirs"):
        return (
            f"Docker cannot give a container a GPU: it does not use CDI{neither}; let {FILE} say features.cdi = true, or see"
            " journalctl -u docker there, and run again."
        )
    if _finds_gpus(seen):
        return (
            f"Docker gives a container GPUs without /dev/nvidia-uvm, and CUDA cannot compute there: {seen.incomplete} does not"
            f" name it, though it is there; run nvidia-ctk cdi generate --output={seen.incomplete} there, and run again."
        )
    if version(seen.packages.get(BASE, "")) < REFRESHES:
        way = (
            f"run nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml there, or let the package {BASE} be of version"
            f" {'.'.join(map(str, REFRESHES))} or newer, which does that by itself"
        )
    else:
        way = "see what nvidia-ctk cdi generate and journalctl -u nvidia-cdi-refresh say there"
    return f"Docker cannot give a container a GPU: it finds no device {GPU}=…{neither}; {way}, and run again."


def exposed(containers: Sequence[Container]) -> list[str]:
    """The containers that lose their GPU at the next daemon-reload, because systemd does not know that they may have it.

    Source: github.com/NVIDIA/nvidia-container-toolkit/issues/48.
    """
    return [
        container.name
        for container in containers
        if container.gpu and container.allowed and not any(_is_nvidia(device) for device in container.allowed)
    ]


def loses_its_gpu(container: str) -> str:
    """What is said of such a container."""
    return (
        f"the container {container} loses its GPU at the next daemon-reload (Failed to initialize NVML: Unknown Error), because"
        f" systemd does not know of it: make the container anew, with --device {GPU}=all in place of --gpus."
    )


def _is_nvidia(device: str) -> bool:
    return device.startswith(f"/dev/char/{NVIDIA_MAJOR}:") or device.startswith(("/dev/nvidia", "char-nvidia"))
