"""Our services listen where they should, and nowhere else."""

from __future__ import annotations

from roles.base import USER
from tests.verify.cluster import Cluster, Service, Subject

LISTENING = "LISTEN"


def test_service_listens_where_it_should(service: Service) -> None:
    pid = service.running().pid
    port = service.listens_on.rpartition(":")[2]
    listening = [socket for socket in service.subject.sockets() if socket.state == LISTENING]
    found = sorted(socket.local for socket in listening if pid in socket.pids and socket.port == port)
    assert found == [service.listens_on], (
        f"{service.subject}: {service.unit} listens on {', '.join(found) or 'nothing'} at port {port},"
        f" and should on {service.listens_on} alone; see `systemctl cat {service.unit}` there for a drop-in,"
        " and run deploys/cluster.py."
    )


def test_nothing_else_of_ours_listens(machine: Subject, cluster: Cluster) -> None:
    user = int(machine.ask(f"id -u {USER}"))
    wanted = {service.listens_on for service in cluster.services if service.subject is machine}
    listening = [socket for socket in machine.sockets() if socket.state == LISTENING]
    strange = sorted(socket.local for socket in listening if socket.user == user and socket.local not in wanted)
    assert not strange, (
        f"{machine}: the user {USER} also listens on {', '.join(strange)}, which nobody planned;"
        f" see `ss -tlnp` there, and stop what does."
    )
