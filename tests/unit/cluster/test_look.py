"""How a host is asked what it is."""

from __future__ import annotations

from typing import Any

import pytest
from pyinfra.api import Config
from pyinfra.context import ctx_config

from roles.base.facts import MachineFact
from roles.cluster import look
from tests.unit.cluster.examples import machine


class Asked:
    """Stands in for pyinfra's host: every fact is the one of a host that shows nothing, and with what sudo is remembered."""

    def __init__(self, sudo: str, **data: Any) -> None:
        self.machine = machine(root=False, sudo=sudo)
        self.data = data
        self.sudo: dict[type, bool] = {}

    def get_fact(self, fact: Any, _sudo: bool) -> Any:
        self.sudo[fact] = _sudo
        return self.machine if fact is MachineFact else fact.default()


@pytest.mark.parametrize(
    ("data", "sudo", "used"),
    [
        ({"_sudo": True}, "yes", True),
        ({"_sudo": True}, "sudo: a password is required", False),
        ({"_sudo": True}, "", False),
        ({}, "yes", False),
        ({"_sudo": False}, "yes", False),
    ],
)
def test_gpus_are_looked_at_with_sudo_where_it_is_wanted_and_works(data: dict[str, Any], sudo: str, used: bool) -> None:
    """A command with a sudo that does not work would fail, and with it the run, before the reason is found."""
    host = Asked(sudo, **data)
    with ctx_config.use(Config()):
        seen = look._sight(host)  # type: ignore[arg-type]
    assert host.sudo.pop(MachineFact) is False
    assert len(host.sudo) == 3
    assert set(host.sudo.values()) == {used}
    assert seen.wants_sudo == data.get("_sudo", False)
