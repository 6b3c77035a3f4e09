"""Every planned worker is connected to its head, and to nobody else. Both sides are looked at, and nothing is connected to."""

from __future__ import annotations

from tests.verify import reading
from tests.verify.cluster import Cluster, Service

CONNECTED = "ESTAB"


def test_head_was_started_with_every_planned_worker(head: Service) -> None:
    given = given_workers(head.running())
    planned = list(head.subject.plan.endpoints)
    assert given == planned, (
        f"{head.subject}: {head.unit} was started with the workers {', '.join(given) or 'none'}, and the plan has"
        f" {', '.join(planned)}; see `systemctl cat {head.unit}` there for a drop-in, and run deploys/cluster.py."
    )


def test_head_is_connected_to_every_planned_worker(head: Service, cluster: Cluster) -> None:
    names = {worker.reached_at: str(worker.subject) for worker in cluster.workers}
    planned = head.subject.plan.endpoints
    live = live_workers(head, head.running())
    lost = [f"{names[endpoint]} ({endpoint})" for endpoint in planned if endpoint not in live]
    assert not lost, (
        f"{head.subject}: {head.unit} has no live connection to {', '.join(lost)}; run deploys/cluster.py, which restarts it."
    )
    strange = sorted(live - set(planned))
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


def given_workers(seen: reading.Service) -> list[str]:
    """The endpoints on the command line of a head, in order."""
    return [endpoint for endpoint in (seen.option("--rpc") or "").split(",") if endpoint]


def live_workers(head: Service, seen: reading.Service) -> set[str]:
    """The endpoints that a head, given or planned, holds a connection to that the other side has not closed."""
    known = {*given_workers(seen), *head.subject.plan.endpoints}
    return {
        socket.peer
        for socket in head.subject.sockets()
        if socket.state == CONNECTED and seen.pid in socket.pids and socket.peer in known
    }
