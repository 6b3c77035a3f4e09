"""The units are active, start at boot, and are not restarting."""

from __future__ import annotations

import time

from tests.verify.cluster import Service

LONG_ENOUGH = 5
"""Seconds between two looks. systemd waits for 2 before it starts a service again: one that cannot live shows by then."""


def test_service_runs(service: Service) -> None:
    seen = service.look()
    running = seen.running
    assert running, (
        f"{service.subject}: {service.unit} is {seen.state} (result: {seen.result}) and should run;"
        f" see `journalctl -u {service.unit}` there."
    )


def test_service_starts_at_boot(service: Service) -> None:
    enabled = service.look().enabled
    assert enabled, f"{service.subject}: {service.unit} does not start at boot; run deploys/cluster.py again."


def test_service_is_not_restarting(service: Service) -> None:
    time.sleep(max(0.0, service.since + LONG_ENOUGH - time.monotonic()))
    seen = service.look()
    again = seen.restarts - service.first.restarts
    assert (seen.invocation, again) == (service.first.invocation, 0), (
        f"{service.subject}: {service.unit} was started again while it was verified (by systemd: {again} times);"
        f" see `journalctl -u {service.unit}` there for why it ended."
    )
