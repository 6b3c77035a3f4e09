"""Making Docker what it is to be, and taking back what we put there."""

from __future__ import annotations

from functools import partial

from pyinfra import host, state
from pyinfra.api import StringCommand, operation

from roles.base import operations as base
from roles.base.facts import RecordFact
from roles.base.operations import Commands, written
from roles.base.remote import complain
from roles.base.templates import render
from roles.cluster.operations import fails
from roles.docker import decisions
from roles.docker.daemon import FILE, RECORD
from roles.docker.decisions import BASE, GPU, Texts
from roles.docker.facts import DockerFact
from roles.docker.seen import PIN, Seen
from roles.docker.settings import Settings

NAME = "docker"
TOOLKIT_NAME = "nvidia-container-toolkit"
"""Names what we have added for it: packages, repository."""


@operation()
def installed(settings: Settings, nvidia: bool) -> Commands:
    """Docker's packages are there: those of the Docker that is there already, or else of the one that is wanted.

    :param nvidia: GPUs of NVIDIA are to compute here
    """
    seen = host.get_fact(DockerFact)
    judge = partial(decisions.against, nvidia=nvidia)
    wanted = decisions.packages(seen, settings)
    yield from base.chosen_packages._inner(NAME, wanted, judge)
    if "docker.io" in wanted and not seen.candidates:
        # Only now does apt know in which packages the distribution has it.
        yield from base.chosen_packages._inner(NAME, decisions.packages(host.get_fact(DockerFact), settings), judge)


@operation()
def configured(settings: Settings, nvidia: bool) -> Commands:
    """daemon.json says what is wanted, and all that it said before; where it does, not one character of it changes."""
    seen = host.get_fact(DockerFact)
    try:
        wanted = decisions.texts(seen, settings, nvidia)
    except ValueError as error:
        yield fails(f"{host.name}: {FILE} cannot be read ({error}): correct it, and run again.")
        return
    yield from _write(seen, wanted)
    host.noop(f"{FILE} says what is wanted")


@operation()
def running() -> Commands:
    """The daemon runs, now and after a boot, with what its files say; containers go on while it is restarted."""
    seen = host.get_fact(DockerFact)
    if "masked" in seen.boot:
        yield fails(f"{host.name}: docker.service is masked: run systemctl unmask docker.service docker.socket, and run again.")
        return
    if seen.boot != "enabled":
        yield StringCommand("systemctl enable --quiet docker.service")
    reasons = decisions.owed(seen)
    if not reasons:
        host.noop("Docker runs with what its files say")
        return
    yield _restart("; ".join(reasons))
    left = decisions.differences(host.get_fact(DockerFact))
    if left:
        yield fails(f"{host.name}: Docker was restarted, and still {left[0]}: see journalctl -u docker there.")


@operation()
def toolkit(settings: Settings) -> Commands:
    """What makes NVIDIA's GPUs known to Docker is there, and stays at its version; one that is not by us stays as it is."""
    seen = host.get_fact(DockerFact)
    wanted = decisions.preferences(settings)
    there = seen.packages.get(BASE)
    if there and not seen.pin:
        host.noop("the container toolkit that is there stays")
        return
    yield from base.repository._inner(decisions.toolkit_repository(settings))
    # Before the installation: no other version can come, not even with a broken run.
    if seen.pin != wanted:
        yield written(PIN, wanted)
    judge = partial(decisions.against_toolkit, settings=settings)
    moved = there is not None and there != decisions.toolkit_package(settings)
    yield from base.chosen_packages._inner(TOOLKIT_NAME, [BASE], judge, moved=moved)


@operation()
def gives_gpus(ours: bool) -> Commands:
    """Docker can give a container a GPU of NVIDIA, if their driver is loaded; which container will lose its GPU is said.

    :param ours: containers of ours are to have it, which ask by CDI alone
    """
    seen = host.get_fact(DockerFact)
    if not seen.driver:
        host.noop("NVIDIA's driver is not loaded: nothing can be given yet")
        return
    if not decisions.ready(seen, ours):
        yield StringCommand(render("docker/refresh.sh.j2", gpu=GPU))
        seen = host.get_fact(DockerFact)
        if not decisions.ready(seen, ours):
            yield fails(f"{host.name}: {decisions.unready(seen, ours)}")
            return
    if state.is_executing:
        for name in decisions.exposed(seen.containers):
            complain(host, f"{host.name}: {decisions.loses_its_gpu(name)}")
    host.noop("Docker can give a container a GPU")


@operation()
def unconfigured() -> Commands:
    """Take out of daemon.json what is ours and still as we put it there; it takes effect when Docker is restarted."""
    seen = host.get_fact(DockerFact)
    try:
        wanted = decisions.texts_without_us(seen)
    except ValueError as error:
        yield fails(f"{host.name}: {FILE} cannot be read ({error}): correct it, and run again.")
        return
    yield from _write(seen, wanted)
    host.noop("nothing there is ours")


@operation()
def uninstalled() -> Commands:
    """Purge the packages that came by us, and take the repository away; containers stop, and stay with images and volumes.

    A Docker of the user's own goes on, and its repository stays: ours has taken the place of the user's entry for it.
    """
    ours = {"docker.io", "docker-ce"} & set(host.get_fact(RecordFact, record=NAME).states)
    yield from base.remove_packages._inner(NAME, render("docker/spare.sh.j2") if ours else "true")
    if host.get_fact(DockerFact).source != "docker":
        yield from base.no_repository._inner(NAME)


@operation()
def toolkit_removed() -> Commands:
    """Purge the container toolkit if it came by us, and let go of its version."""
    seen = host.get_fact(DockerFact)
    yield from base.remove_packages._inner(TOOLKIT_NAME)
    if seen.pin:
        yield StringCommand(f"rm {PIN}")
    yield from base.no_repository._inner(TOOLKIT_NAME)


def _write(seen: Seen, wanted: Texts) -> Commands:
    if wanted.record is not None and not decisions.is_recorded(seen, wanted.record):
        # First of all: what a broken run has put into the file is ours, too.
        yield written(RECORD, wanted.record)
    if wanted.options is None and seen.text is not None:
        yield StringCommand(f"rm {FILE}")
    elif wanted.options is not None and wanted.options != seen.text:
        yield StringCommand(render("docker/daemon.sh.j2", host=host.name, file=FILE, text=wanted.options))
    if wanted.record is None and seen.record:
        yield StringCommand(f"rm {RECORD}")


def _restart(reasons: str) -> StringCommand:
    return StringCommand(
        render(
            "docker/restart.sh.j2",
            host=host.name,
            file=FILE,
            live="{{.LiveRestoreEnabled}}",
            version="{{.ServerVersion}}",
            ends_containers=decisions.ends_containers(reasons),
        )
    )
