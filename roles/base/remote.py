"""Commands on a host while a deploy runs, from inside a function that an operation yields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from paramiko import SSHException
from pyinfra import logger
from pyinfra.api.arguments import CONNECTOR_ARGUMENT_KEYS, pop_global_arguments
from pyinfra.api.host import Host
from pyinfra.api.state import State


class HostError(Exception):
    """Something is wrong on a host; its text is the sentence that the user reads."""


@dataclass(frozen=True)
class Answer:
    """What a command said.

    :param ok: it ended with 0
    """

    ok: bool
    output: list[str]
    errors: list[str]


def connection_arguments(state: State, host: Host) -> dict[str, Any]:
    """How the inventory wants commands run on this host (`_sudo`, `_timeout`, …)."""
    arguments, _ = pop_global_arguments(state, host, {})
    return {key: value for key, value in dict(arguments).items() if key in CONNECTOR_ARGUMENT_KEYS}


def run(state: State, host: Host, command: str, timeout: int = 60) -> Answer:
    """Run one command on a host as the inventory says (sudo and the rest); a host that is gone is an answer, too.

    :param timeout: seconds
    """
    arguments = connection_arguments(state, host) | {"_timeout": timeout}
    try:
        # What is made for the services must be readable for them, however strict the umask of the connection's user is.
        ok, output = host.run_shell_command(f"umask 022\n{command}", print_output=False, print_input=False, **arguments)
    except (TimeoutError, OSError, EOFError, SSHException) as error:
        return Answer(False, [], [f"{host.name} did not answer within {timeout} s ({error or type(error).__name__})"])
    return Answer(ok, list(output.stdout_lines), list(output.stderr_lines))


def say(host: Host, sentence: str) -> None:
    """Show how far long work is."""
    host.log(sentence, log_func=logger.info)


def complain(host: Host, sentence: str) -> None:
    """Show what is wrong."""
    host.log_styled(sentence, fg="red", log_func=logger.error)
