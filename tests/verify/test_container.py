"""A host with ``runtime = docker`` runs the image that was built for it, in a container that may do no more than it needs."""

from __future__ import annotations

from roles.base.machine import HOME
from roles.llama_cpp.container import devices as planned_devices
from tests.verify import containers
from tests.verify.cluster import Cluster, Service, Subject
from tests.verify.containers import REPOSITORY, REVISION, Container, Image
from tests.verify.reading import container_of


def test_container_runs_the_image_of_the_release(contained: Service) -> None:
    running = _container(contained).image
    wanted = contained.subject.manifest()["image"]
    assert running == wanted, (
        f"{contained.subject}: the container of {contained.unit} runs the image {running}, and {contained.subject.plan.release}"
        f" is {wanted}; run deploys/cluster.py, which restarts it."
    )


def test_name_of_the_release_is_its_image(docker: Subject) -> None:
    """Somebody may have built another one under the same name."""
    named = _named(docker).id
    wanted = docker.manifest()["image"]
    assert named == wanted, (
        f"{docker}: {REPOSITORY}:{docker.plan.release} is {named or 'no image'}, and what was built is {wanted};"
        " run deploys/cluster.py, which builds it anew."
    )


def test_image_is_of_the_pinned_commit(docker: Subject) -> None:
    revision = _named(docker).labels.get(REVISION, "no commit")
    assert revision == docker.plan.commit, (
        f"{docker}: {REPOSITORY}:{docker.plan.release} was built from {revision}, and the pinned commit is"
        f" {docker.plan.commit}; run deploys/cluster.py, which builds it anew."
    )


def test_container_is_confined(contained: Service) -> None:
    pid = contained.running().pid
    gaps = containers.gaps(contained.subject.ask(containers.confinement_command(pid)))
    assert not gaps, (
        f"{contained.subject}: the container of {contained.unit} {', '.join(gaps)}; see `systemctl cat {contained.unit}` there"
        " for a drop-in, and run deploys/cluster.py."
    )


def test_container_has_the_planned_devices_alone(contained: Service) -> None:
    devices, planned = _container(contained).devices, planned_devices(contained.unit, contained.subject.plan)
    assert sorted(devices) == sorted(planned), (
        f"{contained.subject}: the container of {contained.unit} has the devices {', '.join(devices) or 'none'}, and should have"
        f" {', '.join(planned) or 'none'}; see `systemctl cat {contained.unit}` there, and run deploys/cluster.py."
    )


def test_container_can_change_nothing_of_the_host_but_the_cache(contained: Service) -> None:
    writable = _container(contained).writable
    assert set(writable) <= {HOME}, (
        f"{contained.subject}: the container of {contained.unit} can change {', '.join(writable)}, and needs {HOME} alone;"
        f" see `systemctl cat {contained.unit}` there for a drop-in, and run deploys/cluster.py."
    )


def test_no_other_container_of_ours_is_there(docker: Subject, cluster: Cluster) -> None:
    planned = {container_of(service.unit) for service in cluster.contained if service.subject is docker}
    strange = sorted(container.name for container in _containers(docker) if container.ours and container.name not in planned)
    assert not strange, (
        f"{docker}: there are also the containers {', '.join(strange)}, which nobody planned; see `docker ps --all` there,"
        " and remove them."
    )


def _containers(machine: Subject) -> list[Container]:
    return containers.containers(machine.ask(containers.CONTAINERS_COMMAND))


def _container(service: Service) -> Container:
    service.running()
    name = container_of(service.unit)
    found = {container.name: container for container in _containers(service.subject)}
    assert name in found, f"{service.subject}: {service.unit} runs in no container {name}; run deploys/cluster.py."
    return found[name]


def _named(machine: Subject) -> Image:
    """The image that the name of the planned release leads to."""
    return containers.image(machine.ask(containers.image_command(f"{REPOSITORY}:{machine.plan.release}")))
