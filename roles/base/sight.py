"""A service as it comes up: what systemd, the kernel and its journal show of it. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from roles.base.units import main_pid

_SYSTEMD = re.compile(
    r"^(Start(ed|ing)|Stopp(ed|ing)|Failed to start|Consumed) "
    r"|: (Deactivated successfully|Scheduled restart job|(Main|Control) process exited|Failed with result|Consumed )"
)
"""What systemd itself writes into the journal of a unit."""
_BACKTRACE = re.compile(r"^(#\d+ |\[New LWP|\[Thread|\[Inferior|.*\(.*\+0x[0-9a-f]+\)\s*\[0x)")
_REASON = re.compile(r"error|fail|abort|invalid|cannot|couldn't|not found|no such|denied|no devices", re.IGNORECASE)


@dataclass(frozen=True)
class Sight:
    """One look at a service.

    :param state: systemd's words for it, e.g. ``active running`` or ``activating start-pre``
    :param job: systemd still has to start or stop it: what is seen may be the process that is to go
    :param pid: of its main process, 0 when there is none
    :param restarts: how often systemd restarted it since it was started by hand
    :param invocation: systemd's name for this start of it
    :param listening: ``address:port`` of each TCP socket on which the main process listens
    :param peers: ``address:port`` to which the main process holds an established TCP connection
    """

    state: str = ""
    job: bool = False
    pid: int = 0
    restarts: int = 0
    invocation: str = ""
    listening: frozenset[str] = frozenset()
    peers: frozenset[str] = frozenset()


def command(unit: str) -> str:
    """The shell command whose output `parse` reads."""
    return f"""systemctl show {unit} --property=ActiveState,SubState,Job,NRestarts,InvocationID
{main_pid(unit)}
echo "MainPID=$pid"
[ "$pid" -gt 0 ] && ss -Htanp | awk -v pid="pid=$pid," 'index($0, pid) {{print "socket " $1 " " $4 " " $5}}'
true"""


def parse(lines: Sequence[str]) -> Sight:
    """Read the output of `command`; lines that it does not know are passed over."""
    words: dict[str, str] = {}
    listening: set[str] = set()
    peers: set[str] = set()
    for line in lines:
        match line.split():
            case ["socket", "LISTEN", local, _]:
                listening.add(local)
            case ["socket", "ESTAB", _, peer]:
                peers.add(peer)
            case _:
                key, _, value = line.partition("=")
                words[key] = value.strip()
    return Sight(
        state=f"{words.get('ActiveState', '')} {words.get('SubState', '')}".strip(),
        job=_number(words.get("Job", "")) > 0,
        pid=_number(words.get("MainPID", "")),
        restarts=_number(words.get("NRestarts", "")),
        invocation=words.get("InvocationID", ""),
        listening=frozenset(listening),
        peers=frozenset(peers),
    )


def telling(lines: Sequence[str]) -> str:
    """The line of a journal that says why a process ended: its last one that reads like a reason, or else its last one."""
    said = [line.strip() for line in lines if line.strip()]
    for found in (reasons(said), _own(said), said):
        if found:
            return found[-1]
    return "its journal says nothing"


def reasons(lines: Sequence[str]) -> list[str]:
    """The lines of a journal that read like a reason."""
    return [line for line in _own(lines) if _REASON.search(line)]


def _own(lines: Sequence[str]) -> list[str]:
    return [line for line in lines if not _SYSTEMD.search(line) and not _BACKTRACE.match(line)]


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() else 0
