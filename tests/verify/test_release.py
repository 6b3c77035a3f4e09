"""Every host runs the planned release: the file, the process, the libraries in its memory."""

from __future__ import annotations

import json
from pathlib import PurePosixPath
from typing import Any

from roles.cluster.state import CURRENT, RELEASES
from tests.verify import reading
from tests.verify.cluster import Service, Subject


def test_current_is_the_planned_release(machine: Subject) -> None:
    current = machine.ask(f"readlink -m {CURRENT}").strip()
    assert current == _folder(machine), (
        f"{machine}: {CURRENT} leads to {current}, and the plan says {machine.plan.release}; run deploys/cluster.py."
    )


def test_release_is_of_the_pinned_commit(machine: Subject) -> None:
    commit = _manifest(machine)["commit"]
    assert commit == machine.plan.commit, (
        f"{machine}: its release was built from {commit}, and the pinned commit is {machine.plan.commit}; run deploys/cluster.py."
    )


def test_files_are_as_they_were_built(machine: Subject) -> None:
    found = reading.digests(machine.ask(f"cd {_folder(machine)} && find . -type f ! -name manifest.json -exec sha256sum {{}} +"))
    built = _manifest(machine)["files"]
    changed = sorted(path for path in found.keys() | built.keys() if found.get(path) != built.get(path))
    assert not changed, (
        f"{machine}: {', '.join(changed)} in {_folder(machine)} differ from what was built;"
        " remove that folder and run deploys/cluster.py."
    )


def test_process_is_the_installed_release(service: Service) -> None:
    seen = service.running()
    folder = f"{_folder(service.subject)}/"
    assert seen.program.startswith(folder) and not seen.program.endswith(" (deleted)"), (
        f"{service.subject}: {service.unit} runs {seen.program}, and {service.subject.plan.release} is installed;"
        f" run deploys/cluster.py, which restarts it."
    )
    built = _manifest(service.subject)["files"]
    assert seen.digest == built.get(seen.program.removeprefix(folder)), (
        f"{service.subject}: {service.unit} runs a {seen.program} that differs from what was built;"
        f" remove {folder} and run deploys/cluster.py."
    )


def test_process_uses_the_installed_libraries(service: Service) -> None:
    seen = service.running()
    folder = f"{_folder(service.subject)}/"
    names = {PurePosixPath(path).name for path in _manifest(service.subject)["files"]}
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
    program = f"{_folder(head.subject)}/{_manifest(head.subject)['programs']['llama-server']}"
    version = head.subject.ask(f"{program} --version 2>&1")
    assert reading.version_names(version, head.subject.plan.commit), (
        f"{head.subject}: {program} says {version.splitlines()[:1]}, and the pinned commit is {head.subject.plan.commit};"
        f" remove {_folder(head.subject)} and run deploys/cluster.py."
    )


def _folder(machine: Subject) -> str:
    return f"{RELEASES}/{machine.plan.release}"


def _manifest(machine: Subject) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads(machine.ask(f"cat {_folder(machine)}/manifest.json"))
    return manifest
