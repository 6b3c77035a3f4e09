"""Every host runs the planned release: the file, the process, the libraries in its memory."""

from __future__ import annotations

from pathlib import PurePosixPath

from roles.cluster.state import CURRENT, RELEASES
from tests.verify import reading
from tests.verify.cluster import Cluster, Service, Subject


def test_current_is_the_planned_release(machine: Subject) -> None:
    current = machine.ask(f"readlink -m {CURRENT}").strip()
    assert current == machine.folder, (
        f"{machine}: {CURRENT} leads to {current}, and the plan says {machine.plan.release}; run deploys/cluster.py."
    )


def test_release_is_of_the_pinned_commit(machine: Subject) -> None:
    commit = machine.manifest()["commit"]
    assert commit == machine.plan.commit, (
        f"{machine}: its release was built from {commit}, and the pinned commit is {machine.plan.commit}; run deploys/cluster.py."
    )


def test_files_are_as_they_were_built(machine: Subject, cluster: Cluster) -> None:
    (service, *_) = [service for service in cluster.services if service.subject is machine]
    # An image has its files where a container of it shows them, and beside them what its build has noted down.
    root = f"/proc/{service.running().pid}/root" if machine.docker else ""
    files = "find . -type f ! -name manifest.json ! -path './build/*' -exec sha256sum {} +"
    found = reading.digests(machine.ask(f"cd {root}{machine.folder} && {files}"))
    built = machine.manifest()["files"]
    changed = sorted(path for path in found.keys() | built.keys() if found.get(path) != built.get(path))
    assert not changed, (
        f"{machine}: {', '.join(changed)} in {machine.folder} differ from what was built;"
        " remove that folder and run deploys/cluster.py."
    )


def test_process_runs_where_it_should(service: Service) -> None:
    where = {True: "in a container", False: "outside of containers"}
    contained = service.running().contained
    assert contained == service.subject.docker, (
        f"{service.subject}: {service.unit} runs {where[contained]}, and should run {where[service.subject.docker]};"
        f" see `systemctl cat {service.unit}` there for a drop-in, and run deploys/cluster.py."
    )


def test_process_is_the_installed_release(service: Service) -> None:
    seen = service.running()
    folder = f"{service.subject.folder}/"
    assert seen.program.startswith(folder) and not seen.program.endswith(" (deleted)"), (
        f"{service.subject}: {service.unit} runs {seen.program}, and {service.subject.plan.release} is installed;"
        f" run deploys/cluster.py, which restarts it."
    )
    built = service.subject.manifest()["files"]
    assert seen.digest == built.get(seen.program.removeprefix(folder)), (
        f"{service.subject}: {service.unit} runs a {seen.program} that differs from what was built;"
        f" remove {folder} and run deploys/cluster.py."
    )


def test_process_uses_the_installed_libraries(service: Service) -> None:
    seen = service.running()
    folder = f"{service.subject.folder}/"
    names = {PurePosixPath(path).name for path in service.subject.manifest()["files"]}
    ours = [
        path
        for path in seen.mapped - {seen.program}
        if path.startswith(f"{RELEASES}/") or PurePosixPath(path.removesuffix(" (deleted)")).name in names
    ]
    strange = sorted(path for path in ours if not path.startswith(folder) or path.endswith(" (deleted)"))
    assert not strange, (
        f"{service.subject}: {service.unit} has loaded {', '.join(strange)}, which is not of the installed release;"
        " restart it there, and a worker's head after it."
    )


def test_llama_server_names_the_pinned_commit(head: Service) -> None:
    program = f"{head.subject.folder}/{head.subject.manifest()['programs']['llama-server']}"
    # A second process beside the one that serves, which goes on.
    within = f"docker exec {reading.container_of(head.unit)} " if head.subject.docker else ""
    version = head.subject.ask(f"{within}{program} --version 2>&1")
    assert reading.version_names(version, head.subject.plan.commit), (
        f"{head.subject}: {program} says {version.splitlines()[:1]}, and the pinned commit is {head.subject.plan.commit};"
        f" remove {head.subject.folder} and run deploys/cluster.py."
    )
