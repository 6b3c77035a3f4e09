"""Every worker serves the backend that was planned; which one it is stands in its journal, not in the head's list."""

from __future__ import annotations

import pytest

from tests.verify import reading
from tests.verify.cluster import Service


def test_worker_serves_the_planned_backend(worker: Service) -> None:
    planned = worker.subject.plan.profile.backend
    if not worker.subject.plan.clients:
        pytest.skip(f"{worker.subject}: no head uses it, and a worker says what it serves when its first client comes")
    start = worker.running().invocation
    journal = worker.subject.ask(f"journalctl --no-pager --output=cat _SYSTEMD_INVOCATION_ID={start}")
    devices = reading.devices(journal)
    assert devices, (
        f"{worker.subject}: the journal of {worker.unit} since its start names no device that it serves;"
        " restart the worker and its head if the journal was cleared."
    )
    strange = [f"{device.name} ({device.description})" for device in devices if device.backend != planned]
    assert not strange, (
        f"{worker.subject}: {worker.unit} serves {', '.join(strange)} where {planned} is planned;"
        f" the beginning of its journal says why."
    )
