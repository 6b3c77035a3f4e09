"""Options, and the hosts of the inventory as parameters: a failure names its host.

Parameters of a test: ``machine`` every host, ``driven`` those on which NVIDIA's GPUs are to compute, ``service`` every unit of
ours, ``worker`` and ``head`` those of one kind.
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
DRIVER = "test_driver.py"
CONNECTIONS = pytest.StashKey[Connections]()


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
    # A parameter without a value would be a test that is skipped.
    return True if collection_path.name == DRIVER and not config.stash[CLUSTER].driven else None


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
        "service": cluster.services,
        "worker": cluster.workers,
        "head": cluster.heads,
    }
    for name, subjects in parameters.items():
        if name in metafunc.fixturenames:
            metafunc.parametrize(name, subjects, ids=str)


@pytest.fixture(scope="session")
def cluster(pytestconfig: pytest.Config) -> Cluster:
    return pytestconfig.stash[CLUSTER]
