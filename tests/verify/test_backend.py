"""Every worker serves what was planned, and a head can use GPUs of its own: that stands in the journals of both."""

from __future__ import annotations

from collections.abc import Callable

from roles.cluster import banner
from roles.cluster.backend import CPU
from roles.llama_server.journal import without_gpu
from roles.rpc_server.settings import Settings as RpcServerSettings
from roles.rpc_server.unit import gpus
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
    settings = worker.subject.settings[RpcServerSettings]
    wanted = gpus(worker.subject.plan, settings)
    lack = banner.lacks(devices, planned, wanted)
    assert not lack, (
        f"{worker.subject}: {worker.unit} {lack}; the beginning of its journal says why. If fewer are meant, name those in"
        " rpc_server_devices."
    )
    strange = reading.strange(devices, planned, settings.devices or ())
    assert not strange, (
        f"{worker.subject}: {worker.unit} serves {banner.listed(strange)} where {planned} is planned: name in rpc_server_devices"
        " those that you mean."
    )
    surplus = banner.exceeds(devices, wanted)
    assert not surplus, f"{worker.subject}: {worker.unit} {surplus}; name those that you mean in rpc_server_devices."


def test_head_can_use_gpus_of_its_own(head: Service) -> None:
    plan, said = head.subject.plan, without_gpu(_journal(head))
    assert plan.compute.backend == CPU or plan.lends_to_itself or not said, (
        f'{head.subject}: {head.unit} computes without its own GPUs (its journal says "{said}"); see to the driver there,'
        " or correct `backend`."
    )


def _journal(service: Service) -> list[str]:
    """What a service has said at its start."""
    start = service.running().invocation
    journal = f"journalctl --no-pager --output=cat _SYSTEMD_INVOCATION_ID={start} | head -n 1000"
    return service.subject.ask(journal).splitlines()
