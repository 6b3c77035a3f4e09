"""Every worker serves the backend that was planned; which one it is stands in its journal, not in the head's list."""

from __future__ import annotations

from collections.abc import Callable

from roles.rpc_server.settings import Settings as RpcServerSettings
from tests.verify import reading
from tests.verify.cluster import Service
from tests.verify.conftest import SERVES


def test_worker_serves_the_planned_backend(worker: Service, record_property: Callable[[str, object], None]) -> None:
    planned = worker.subject.plan.profile.backend
    start = worker.running().invocation
    journal = worker.subject.ask(f"journalctl --no-pager --output=cat _SYSTEMD_INVOCATION_ID={start}")
    devices = reading.devices(journal)
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
