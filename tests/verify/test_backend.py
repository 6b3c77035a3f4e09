"""Every worker serves, and every head has, the backend that was planned: which one it is stands in its own journal."""

from __future__ import annotations

from collections.abc import Callable

from roles.cluster.banner import backend, lacks
from roles.llama_server.journal import devices as devices_of_head
from roles.rpc_server.settings import Settings as RpcServerSettings
from tests.verify import reading
from tests.verify.cluster import Service
from tests.verify.conftest import SERVES


def test_worker_serves_the_planned_backend(worker: Service, record_property: Callable[[str, object], None]) -> None:
    planned = worker.subject.plan.profile.backend
    devices = reading.devices(_journal(worker))
    assert devices, (
        f"{worker.subject}: the journal of {worker.unit} since its start names no device that it serves;"
        " restart the worker and its head if the journal was cleared."
    )
    served = ", ".join(f"{device.backend} ({device.description})" for device in devices)
    record_property(SERVES, f"{worker.subject} serves {served}")
    asked, gpus = worker.subject.settings[RpcServerSettings].devices or (), worker.subject.plan.gpus
    strange = reading.strange(devices, planned, asked)
    assert not strange, (
        f"{worker.subject}: {worker.unit} serves {', '.join(map(str, strange))} where {planned} is planned;"
        f" the beginning of its journal says why."
    )
    assert not reading.too_many(devices, gpus, asked), (
        f"{worker.subject}: {worker.unit} serves {served}, and GPUs that are to compute: {gpus}; name those that you mean in"
        " rpc_server_devices."
    )


def test_head_has_the_planned_backend(head: Service) -> None:
    plan = head.subject.plan
    found = devices_of_head(_journal(head).splitlines())
    if plan.lends_to_itself:
        twice = [device for device in found if backend(device) == plan.compute.backend]
        assert not twice, (
            f"{head.subject}: {head.unit} has found {', '.join(twice)}, which its own worker lends it as well;"
            f" see `systemctl cat {head.unit}` there for a drop-in, and run deploys/cluster.py."
        )
    else:
        assert not lacks(found, plan.compute.backend), (
            f"{head.subject}: {head.unit} has found {', '.join(found)}, and no device of the backend {plan.compute.backend};"
            f" the beginning of its journal says why."
        )


def _journal(service: Service) -> str:
    """What a service has said at its start."""
    start = service.running().invocation
    return service.subject.ask(f"journalctl --no-pager --output=cat _SYSTEMD_INVOCATION_ID={start} | head -n 1000")
