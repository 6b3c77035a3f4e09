"""Docker, and NVIDIA's container toolkit where GPUs of theirs compute.

On the host: /etc/apt/sources.list.d/gpuquilt-docker.sources · gpuquilt-nvidia-container-toolkit.sources beside it ·
/etc/apt/keyrings/gpuquilt-docker.asc · gpuquilt-nvidia-container-toolkit.asc beside it ·
/etc/apt/preferences.d/gpuquilt-nvidia-container-toolkit · some keys of /etc/docker/daemon.json, written down in
/var/lib/gpuquilt/docker.json · the packages that /var/lib/gpuquilt/packages/docker and nvidia-container-toolkit name.

Containers get GPUs by CDI alone: what the toolkit would inject otherwise is lost with the next daemon-reload of systemd.
"""

from __future__ import annotations

from pyinfra import host
from pyinfra.api import deploy

from roles.base.operations import repository
from roles.base.settings import HostSettings
from roles.cluster.provision import MachinePlan
from roles.docker import decisions, operations
from roles.docker.facts import DockerFact
from roles.docker.settings import Settings

__all__ = ["Settings", "check", "prepare", "remove", "settle"]


def check(machine: MachinePlan, settings: HostSettings) -> list[str]:
    """Why this host cannot have it, one sentence each, as far as that can be known before anything is changed."""
    runs = _runs_containers(machine)
    if Settings not in settings or not (runs or _is_ours_to_see_to(machine, settings[Settings])):
        return []
    seen, nvidia = host.get_fact(DockerFact), _has_nvidia(machine)
    return decisions.problems(seen, decisions.decided(seen, settings[Settings], nvidia), nvidia, runs)


@deploy("Docker")
def prepare(machine: MachinePlan, settings: Settings) -> None:
    """Make it so; containers that run go on."""
    if not _is_ours_to_see_to(machine, settings):
        return
    nvidia = _has_nvidia(machine)
    seen = host.get_fact(DockerFact)
    # The Docker that is there stays, so that this does not change within a run.
    if decisions.needs_repository(seen, settings, nvidia):
        repository(name="Docker's repository", repository=decisions.repository(seen, settings))
    settings = decisions.decided(seen, settings, nvidia)
    operations.installed(name="Packages", settings=settings, nvidia=nvidia)
    operations.configured(name="daemon.json", settings=settings, nvidia=nvidia)
    operations.running(name="Docker runs")
    if nvidia:
        operations.toolkit(name="NVIDIA container toolkit", settings=settings)


@deploy("Docker's GPUs")
def settle(machine: MachinePlan, settings: Settings) -> None:
    """Make sure that containers can have the GPUs; to be called when the driver is loaded, if it is to be, after a reboot."""
    runs = _runs_containers(machine)
    if _has_nvidia(machine) and (runs or _is_ours_to_see_to(machine, settings)):
        operations.gives_gpus(name="GPUs for containers", ours=runs)


@deploy("Docker is taken back")
def remove() -> None:
    """Take back what we put there; images, containers and volumes stay in /var/lib/docker."""
    operations.toolkit_removed(name="NVIDIA container toolkit")
    operations.unconfigured(name="daemon.json")
    operations.uninstalled(name="Packages")


def _is_ours_to_see_to(machine: MachinePlan, settings: Settings) -> bool:
    return settings.engine in ("distribution", "docker") or (settings.engine == "auto" and _runs_containers(machine))


def _runs_containers(machine: MachinePlan) -> bool:
    return machine.runtime == "docker"


def _has_nvidia(machine: MachinePlan) -> bool:
    return machine.driver is not None
