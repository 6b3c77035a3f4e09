"""Every worker serves what was planned; which devices these are stands in its journal, not in the head's list."""

from __future__ import annotations

from collections.abc import Callable

from roles.cluster import banner
from roles.rpc_server.settings import Settings as RpcServerSettings
from tests.verify import reading
from tests.verify.cluster import Service
from tests.verify.conftest import SERVES


def test_worker_serves_the_planned_backend(worker: Service, record_property: Callable[[str, object], None]) -> None:
    planned = worker.subject.plan.profile.backend
    start = worker.running().invocation
    journal = worker.subject.ask(f"journalctl --no-pager --output=cat _SYSTEMD_INVOCATION_ID={start}")
    devices = banner.devices(journal.splitlines())
    assert devices, (
        f"{worker.subject}: the journal of {worker.unit} since its start names no device that it serves;"
        " restart the worker and its head if the journal was cleared."
    )
    served = ", ".join(f"{device.backend} ({device.description})" for device in devices)
    record_property(SERVES, f"{worker.subject} serves {served}")
    asked = worker.subject.settings[RpcServerSettings].devices or ()
    gpus = 0 if asked else worker.subject.plan.gpus
    lack = banner.lacks(devices, planned, gpus)
    assert not lack, (
        f"{worker.subject}: {worker.unit} {lack}; the beginning of its journal says why. If fewer are meant, name those in"
        " rpc_server_devices."
    )
    strange = reading.strange(devices, planned, asked)
    assert not strange, (
        f"{worker.subject}: {worker.unit} serves {banner.listed(strange)} where {planned} is planned: name in rpc_server_devices"
        " those that you mean."
    )
    surplus = banner.exceeds(devices, gpus)
    assert not surplus, f"{worker.subject}: {worker.unit} {surplus}; name those that you mean in rpc_server_devices."
