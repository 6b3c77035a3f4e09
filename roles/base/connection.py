"""How hosts are reached."""

from __future__ import annotations

import socket
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import paramiko.client
from paramiko import Transport
from pyinfra.api.exceptions import PyinfraError
from pyinfra.api.state import State, StateStage

UNANSWERED = 60
"""Seconds after which a host that acknowledges nothing is given up; without it a run waits for a quarter of an hour."""
HYPERVISORS = Path(__file__).resolve().parents[2] / "deploys" / "hypervisors.py"
"""The deploy that does without the hosts of other groups."""


class QuickTransport(Transport):
    """An SSH connection that sends small packets at once (4 ms a command, not 48), and notices a host that is gone."""

    def __init__(self, sock: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        if isinstance(self.sock, socket.socket):
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            # Linux asks an idle connection only after two hours; waiting for a command's output is idle.
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, UNANSWERED // 4)
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, UNANSWERED // 4)
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNANSWERED * 1000)


def quick_ssh() -> None:
    """Make every SSH connection of this run a `QuickTransport`; pyinfra has no setting for it."""
    setattr(paramiko.client, "Transport", QuickTransport)  # noqa: B010 (it is not exported, so mypy refuses the plain form)


def is_quick() -> bool:
    """Whether `quick_ssh` was called, which only our config.py does."""
    return vars(paramiko.client)["Transport"] is QuickTransport


def ask_nobody() -> None:
    """Keep pyinfra from asking whether to go on without a failed host; the answer is no, and pyinfra has no setting for it."""
    cli = import_module("pyinfra_cli.cli")
    setattr(cli, "_set_fail_prompts", lambda state, config: None)  # noqa: B010 (mypy refuses the plain form)


def stop_when_unreachable(state: State) -> bool:
    """pyinfra calls this when hosts have failed: say which cannot be reached, and stop.

    For deploys/hypervisors.py, whose virtual machines may be off, it is its look that says so, of the hosts that it needs.
    """
    if state.current_stage != StateStage.Connect:
        return True
    if is_for_hypervisors(sys.argv[1:]):
        return False
    raise PyinfraError(unreachable(state))


def is_for_hypervisors(arguments: Sequence[str]) -> bool:
    """Whether pyinfra was asked for deploys/hypervisors.py and for no other deploy.

    By the command line, because hosts are connected to before the deploy is read.

    :param arguments: of pyinfra's command line
    """
    files = [Path(argument).resolve() for argument in arguments if argument.endswith(".py")]
    # Besides it there may be the inventory.
    return HYPERVISORS in files[-1:] and len(files) <= 2


def unreachable(state: State) -> str:
    """The sentence about the hosts that could not be connected to; why stands above it, from pyinfra."""
    names = ", ".join(sorted(host.name for host in state.failed_hosts))
    return f"{names}: cannot be reached (why stands above): start it, or take it out of the inventory; no host was changed."
