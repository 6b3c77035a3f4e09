"""Every planned worker is connected to its head, and to nobody else. Both sides are looked at, and nothing is connected to."""

from __future__ import annotations

from tests.verify.cluster import Cluster, Service
from tests.verify.reading import Socket

LISTENING = "LISTEN"
CONNECTED = "ESTAB"
CLOSED_BY_WORKER = "CLOSE-WAIT"


def test_head_was_started_with_every_planned_worker(head: Service) -> None:
    given = (head.running().option("--rpc") or "").split(",")
    planned = list(head.subject.plan.endpoints)
    assert given == planned, (
        f"{head.subject}: {head.unit} was started with --rpc {','.join(given)}, and the plan says {','.join(planned)};"
        " run deploys/cluster.py."
    )


def test_head_is_connected_to_every_planned_worker(head: Service, cluster: Cluster) -> None:
    names = {worker.reached_at: str(worker.subject) for worker in cluster.workers}
    connections = to_workers(head, cluster)
    live = {socket.peer for socket in connections if socket.state == CONNECTED}
    lost = [f"{names[endpoint]} ({endpoint})" for endpoint in head.subject.plan.endpoints if endpoint not in live]
    assert not lost, (
        f"{head.subject}: {head.unit} has no live connection to {', '.join(lost)}; run deploys/cluster.py, which restarts it."
    )
    strange = sorted(live - set(head.subject.plan.endpoints))
    assert not strange, (
        f"{head.subject}: {head.unit} is also connected to {', '.join(strange)}, which is not its worker; run deploys/cluster.py."
    )


def test_worker_serves_its_head_alone(worker: Service) -> None:
    pid = worker.running().pid
    peers = [
        socket.peer.rpartition(":")[0]
        for socket in worker.subject.sockets()
        if socket.state == CONNECTED and socket.local == worker.reached_at and pid in socket.pids
    ]
    planned = [str(address) for address in worker.subject.plan.clients]
    assert peers == planned, (
        f"{worker.subject}: {worker.unit} serves {', '.join(peers) or 'nobody'}, and should serve"
        f" {', '.join(planned) or 'nobody'}; run deploys/cluster.py."
    )


def test_nobody_waits_for_the_worker(worker: Service) -> None:
    worker.running()
    waiting = [
        socket.peer
        for socket in worker.subject.sockets()
        if socket.local == worker.reached_at and socket.state == CONNECTED and not socket.pids
    ]
    assert not waiting, (
        f"{worker.subject}: {', '.join(waiting)} waits for {worker.unit}, which serves one client at a time;"
        " stop that client, or restart the worker and its head."
    )


def to_workers(head: Service, cluster: Cluster) -> list[Socket]:
    """A head's connections to RPC servers, living and dead."""
    pid = head.running().pid
    workers = {worker.reached_at for worker in cluster.workers}
    return [socket for socket in head.subject.sockets() if pid in socket.pids and socket.peer in workers]
