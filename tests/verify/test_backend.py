"""Every worker serves, and every head has, what was planned: which devices these are stands in its own journal."""

from __future__ import annotations

from collections.abc import Callable

from roles.cluster import banner
from roles.llama_server.journal import devices as devices_of_head
from roles.rpc_server.settings import Settings as RpcServerSettings
from tests.verify import reading
from tests.verify.cluster import Service
from tests.verify.conftest import SERVES


def test_worker_serves_the_planned_backend(worker: Service, record_property: Callable[[str, object], None]) -> None:
    planned = worker.subject.plan.profile.backend
    devices = banner.devices(_journal(worker))
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


def test_head_has_the_planned_backend(head: Service) -> None:
    plan, found = head.subject.plan, devices_of_head(_journal(head))
    own = [device for device in found if device.backend == plan.compute.backend]
    if plan.lends_to_itself:
        assert not own, (
            f"{head.subject}: {head.unit} has found {banner.listed(own)}, which its own worker lends it as well;"
            f" see `systemctl cat {head.unit}` there for a drop-in, and run deploys/cluster.py."
        )
    else:
        # With a log that the inventory has turned down nobody knows.
        assert own or not found, (
            f"{head.subject}: {head.unit} has found {banner.listed(found)}, and no device of the backend {plan.compute.backend};"
            " the beginning of its journal says why."
        )


def _journal(service: Service) -> list[str]:
    """What a service has said at its start."""
    start = service.running().invocation
    journal = f"journalctl --no-pager --output=cat _SYSTEMD_INVOCATION_ID={start} | head -n 1000"
    return service.subject.ask(journal).splitlines()
