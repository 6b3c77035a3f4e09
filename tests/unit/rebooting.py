"""Fake hosts that reboot, a hundred times as fast: a deploy of a test imports this.

``BOOT`` in what a host answers is the id of its boot. What the inventory says of a host, beside the usual: ``_after`` (what it
answers once it has rebooted), ``_stays_off`` (it does not come back), ``_wakes`` (a guest that goes on where it was).
"""

from __future__ import annotations

import logging
import time
from types import SimpleNamespace
from typing import Any

from pyinfra import state
from pyinfra.api.exceptions import ConnectError
from pyinfra.connectors.fake import FakeConnector
from pyinfra.connectors.util import CommandOutput, OutputLine

from roles.base import reboot

FASTER = 100
LOOKS_BEFORE = 2
"""How often it still answers as before when it was told to reboot."""
LOOKS_WHILE_OFF = 3

boots: dict[str, int] = {}
off: dict[str, int] = {}
told: dict[str, int] = {}
_run = FakeConnector.run_shell_command


def _connect(self: FakeConnector) -> None:
    if _is_off(self):
        # As paramiko does when something takes the connection and says nothing, such as a port that is forwarded.
        logging.getLogger("paramiko.transport").error("Traceback (most recent call last)")
        raise ConnectError("no route to host")


def _answer(self: FakeConnector, command: Any, *arguments: Any, **more: Any) -> tuple[bool, CommandOutput]:
    name = self.host.name
    if _is_off(self):
        raise OSError("gone")
    good, said = _run(self, command, *arguments, **more)
    if "systemctl reboot" in str(command):
        told[name] = LOOKS_BEFORE
    elif name in told:
        told[name] -= 1
        if told[name] == 0:
            del told[name]
            for host in state.inventory:
                if name in (host.name, host.data.get("runs_on")):
                    _reboot(host)
            raise OSError("gone")
    boot = f"{name}-{boots.get(name, 0)}"
    return good, CommandOutput([OutputLine(line.buffer_name, line.line.replace("BOOT", boot)) for line in said])


def _reboot(host: Any) -> None:
    off[host.name] = LOOKS_WHILE_OFF
    if not host.data.get("_wakes"):
        boots[host.name] = boots.get(host.name, 0) + 1
        after, answers = host.data.get("_after", {}), host.connector.data["fake_responses"]
        host.connector.data["fake_responses"] = {**after, **answers, **after}


def _is_off(self: FakeConnector) -> bool:
    left = off.get(self.host.name, 0)
    if not self.host.data.get("_stays_off"):
        off[self.host.name] = max(left - 1, 0)
    return left > 0


FakeConnector.connect = _connect  # type: ignore[method-assign]
FakeConnector.run_shell_command = _answer  # type: ignore[method-assign]
reboot.time = SimpleNamespace(  # type: ignore[assignment]
    monotonic=lambda: time.monotonic() * FASTER, sleep=lambda seconds: time.sleep(seconds / FASTER)
)
