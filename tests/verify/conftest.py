"""Options, and the hosts of the inventory as parameters: a failure names its host.

Parameters of a test: ``machine`` every host, ``driven`` those on which NVIDIA's GPUs are to compute, ``docker`` those whose
services run in containers, ``service`` every unit of ours, ``worker`` and ``head`` those of one kind, ``contained`` those in
containers.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.verify.cluster import Cluster, Connections, Service, Subject, Unanswered, look
from tests.verify.inventory import Unusable

CLUSTER = pytest.StashKey[Cluster]()
CONNECTIONS = pytest.StashKey[Connections]()
SERVES = "serves"
"""The property by which a test says what a worker computes with."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("gpuquilt")
    group.addoption("--inventory", help="what to verify: a pyinfra inventory, e.g. inventories/lab.py")
    group.addoption(
        "--data", action="append", default=[], metavar="KEY=VALUE", help="override the inventory's data, as pyinfra does"
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Without an inventory there is nothing to verify: a run of all other tests passes this folder by."""
    if CLUSTER not in config.stash:
        return True
    cluster = config.stash[CLUSTER]
    needed = {"test_driver.py": cluster.driven, "test_container.py": cluster.docker}
    # A parameter without a value would be a test that is skipped.
    return None if needed.get(collection_path.name, [cluster]) else True


def pytest_sessionstart(session: pytest.Session) -> None:
    config = session.config
    # This hook runs only where the folder itself was asked for; elsewhere the option is not known in time.
    if config.option.inventory is None:
        raise pytest.UsageError("say what to verify: pytest tests/verify --inventory inventories/lab.py")
    if config.option.tbstyle == "auto":
        config.option.tbstyle = "line"
    connections = Connections(Path(tempfile.mkdtemp(prefix="gpuquilt-")))
    config.stash[CONNECTIONS] = connections
    try:
        config.stash[CLUSTER] = look(config.option.inventory, config.option.data, connections)
    except (Unusable, Unanswered) as error:
        raise pytest.UsageError(str(error)) from None


def pytest_unconfigure(config: pytest.Config) -> None:
    if CONNECTIONS in config.stash:
        connections = config.stash[CONNECTIONS]
        connections.close()
        shutil.rmtree(connections.folder, ignore_errors=True)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    cluster = metafunc.config.stash[CLUSTER]
    parameters: dict[str, Sequence[Subject | Service]] = {
        "machine": cluster.machines,
        "driven": cluster.driven,
        "docker": cluster.docker,
        "service": cluster.services,
        "worker": cluster.workers,
        "head": cluster.heads,
        "contained": cluster.contained,
    }
    for name, subjects in parameters.items():
        if name in metafunc.fixturenames:
            metafunc.parametrize(name, subjects, ids=str)


@pytest.fixture(scope="session")
def cluster(pytestconfig: pytest.Config) -> Cluster:
    return pytestconfig.stash[CLUSTER]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Which worker computes with what, of those that were asked: in a mixed cluster nobody knows that by heart."""
    reports = [report for outcome in ("passed", "failed") for report in terminalreporter.getreports(outcome)]
    served = [value for report in reports for name, value in report.user_properties if name == SERVES]
    for line in sorted(map(str, served)):
        terminalreporter.write_line(line)
