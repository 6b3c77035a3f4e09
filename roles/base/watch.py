"""Waiting until a service that was just started serves, or until it is clear that it will not."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence

from pyinfra.api.host import Host
from pyinfra.api.state import State

from roles.base.remote import HostError, run, say
from roles.base.sight import Sight, command, parse, telling

PAUSE = 0.2
"""Seconds between two looks."""
SILENCE = 5
"""Seconds after which it is shown what is waited for."""
LINES = 100
"""Lines of the journal that are searched for a reason."""


class Watch:
    """Looks at one service of one host, again and again, and remembers which of its starts it has seen.

    :param unit: the unit's name
    :param diagnose: makes a reason out of the journal's lines
    """

    def __init__(self, state: State, host: Host, unit: str, diagnose: Callable[[Sequence[str]], str] = telling) -> None:
        self.state = state
        self.host = host
        self.unit = unit
        self.diagnose = diagnose
        self._restarts: int | None = None
        self._invocations: list[str] = []

    def look(self) -> Sight:
        """Look once.

        :raises HostError: the host does not answer, or systemd had to restart the service since it was started: a process
            that dies right away will die again
        """
        answer = run(self.state, self.host, command(self.unit), timeout=30)
        if not answer.ok:
            raise HostError(f"{self.unit} could not be looked at ({' '.join(answer.errors) or 'no reason was given'}).")
        sight = parse(answer.output)
        if sight.job:
            return sight
        if re.fullmatch(r"[0-9a-f]{32}", sight.invocation) and sight.invocation not in self._invocations:
            self._invocations.append(sight.invocation)
        if self._restarts is None:
            self._restarts = sight.restarts
        if sight.restarts > self._restarts:
            raise HostError(f"{self.unit} ended and was restarted by systemd: {self.reason()}")
        return sight

    def wait(self, seconds: float, ready: Callable[[Sight], bool], doing: Callable[[Sight], str]) -> Sight:
        """Look until the service is ready, showing what is waited for.

        :param doing: what the service does now, in words
        :raises HostError: it is not ready in time, or `look` says that it will never be
        """
        started = shown = time.monotonic()
        while True:
            sight = self.look()
            if not sight.job and ready(sight):
                return sight
            now = time.monotonic()
            if now - started >= seconds:
                raise HostError(f"{self.unit} is not ready after {seconds:g} s: {doing(sight)}; {self.reason()}")
            if now - shown >= SILENCE:
                say(self.host, f"{self.unit}: {doing(sight)} ({now - started:.0f} s of at most {seconds:g} s)")
                shown = now
            time.sleep(PAUSE)

    def reason(self) -> str:
        """What the journal says of the starts that were seen, as a sentence."""
        if not self._invocations:
            return "it was never started."
        return self.diagnose(self.journal()).rstrip(".") + "."

    def journal(self, lines: int = LINES) -> list[str]:
        """The last lines of the journal of the starts that were seen."""
        # Both what the process wrote and what systemd wrote about it.
        fields = " + ".join(f"_SYSTEMD_INVOCATION_ID={id} + INVOCATION_ID={id}" for id in self._invocations)
        journal = f"journalctl --sync; journalctl --quiet --output=cat --lines={lines} {fields}"
        return run(self.state, self.host, journal, timeout=30).output
