"""A reboot of a host in the middle of a run, proved by the kernel's boot id, and connections that come back after one."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import gevent
from paramiko import SSHException
from pyinfra.api.host import Host
from pyinfra.api.state import State
from pyinfra.connectors.util import clear_askpass_cache

from roles.base.remote import HostError, run, say

UNIT = "gpuquilt-reboot"
"""The transient unit that reboots a host; when systemd refuses the reboot, it is there to say so."""
DELAY = 1
"""Seconds until it does, in which the answer to the command arrives."""
PAUSE = 1
"""Seconds between two looks."""
SILENCE = 5
"""Seconds after which it is shown what is waited for."""
PATIENCE = 30
"""Seconds that one look may take: a host that is going down may not answer any more."""

BUSY = 600
"""Seconds that a package manager may still take before a reboot: as long as we wait for its lock elsewhere."""

HELD = """for lock in lock-frontend lock; do
    inode=$(stat -c ':%i ' /var/lib/dpkg/$lock 2>/dev/null) || continue
    pid=$(grep -sF "$inode" /proc/locks | awk 'NR == 1 { print $5 }')
    [ -n "$pid" ] && echo "held by $(cat /proc/$pid/comm 2>/dev/null) ($pid)"
done
true"""
"""Who holds dpkg's locks: a reboot would leave half-configured what it is in the middle of, the kernel or its initramfs."""

LOOK = f"""echo "boot_id $(cat /proc/sys/kernel/random/boot_id)"
echo "state $(systemctl is-system-running 2>/dev/null)"
systemctl is-failed --quiet {UNIT}.service && echo "refused $(journalctl --quiet --output=cat --lines=1 --unit={UNIT}.service)"
true"""


@dataclass(frozen=True)
class Life:
    """A sign of life of a host.

    :param boot_id: tells one boot from another
    :param state: what `systemctl is-system-running` says
    :param refused: why systemd did not reboot it when it was told to; empty where nothing is known of that
    """

    boot_id: str = ""
    state: str = ""
    refused: str = ""

    @property
    def started(self) -> bool:
        """Whether the boot has come to its end, however well."""
        return self.state not in ("initializing", "starting")


def parse(lines: Sequence[str]) -> Life:
    """Read the output of `LOOK`; lines that it does not know are passed over."""
    words = {key: value.strip() for key, _, value in (line.partition(" ") for line in lines)}
    refused = (words["refused"] or "no reason was given") if "refused" in words else ""
    return Life(words.get("boot_id", ""), words.get("state", ""), refused)


def reboot(state: State, host: Host, boot_id: str, seconds: int) -> None:
    """Reboot a host, and wait until it has started again.

    :param boot_id: of the boot that is to end
    :param seconds: until it must answer again
    :raises HostError: it could not be told to, or has not come back
    """
    _await_package_manager(state, host)
    # Detached, so that the connection does not hang on a command that never ends; a failure of an earlier run is forgotten.
    answer = run(
        state,
        host,
        f"systemctl stop {UNIT}.timer 2>/dev/null; systemctl reset-failed {UNIT}.service 2>/dev/null\n"
        f"systemd-run --quiet --unit={UNIT} --on-active={DELAY} --timer-property=AccuracySec=100ms systemctl reboot",
    )
    if not answer.ok:
        raise HostError(f"it could not be told to reboot ({' '.join(answer.errors) or 'no reason was given'}).")
    life = wait(state, host, seconds, lambda life: life.boot_id != boot_id, "reboots")
    if life is None:
        raise HostError(
            f"it did not come back within {seconds} s after it was told to reboot: look at its console, start it, then run again;"
            " where it needs longer, set `reboot_timeout`."
        )
    if life.refused:
        raise HostError(f"systemd did not reboot it ({life.refused}): see to it, or reboot it yourself, then run again.")
    if life.boot_id == boot_id:
        raise HostError(
            f"it was told to reboot and had not done so {seconds} s later: see `systemctl list-jobs` there, or reboot it"
            " yourself, then run again."
        )


def _await_package_manager(state: State, host: Host) -> None:
    """:raises HostError: it does not come to its end"""
    begun, said = time.monotonic(), float("-inf")
    while held := [line for line in run(state, host, HELD).output if line.startswith("held by ")]:
        now = time.monotonic()
        if now - begun >= BUSY:
            raise HostError(f"it was not rebooted, because dpkg's lock is {held[0]}: let that end, then run again.")
        if now - said >= SILENCE:
            say(host, f"dpkg's lock is {held[0]}, which is waited for before the reboot: {now - begun:.0f} s of at most {BUSY} s")
            said = now
        time.sleep(PAUSE)


def forget(host: Host) -> None:
    """Leave a connection whose other end is gone, or going, so that the next command makes a new one."""
    # What pyinfra has put there for sudo went with that boot, and is not to be removed over this connection.
    clear_askpass_cache(host)
    host.disconnect()


def wait(state: State, host: Host, seconds: float, good: Callable[[Life], bool], doing: str) -> Life | None:
    """Look, connecting anew where that is necessary, until a host answers as it should and its boot has ended.

    :param good: whether this is an answer that is waited for
    :param doing: what the host does meanwhile, in words
    :return: its last sign of life, None where there was none at the end; a boot that does not end is waited for as long
    """
    begun = said = time.monotonic()
    while True:
        with _quiet():
            life = _look(state, host)
        if life and (life.refused or (good(life) and life.started)):
            return life
        now = time.monotonic()
        if now - begun >= seconds:
            return life
        if now - said >= SILENCE:
            there = f"{doing}, and does not answer yet" if life is None else f"{doing} ({life.state or 'systemd says nothing'})"
            say(host, f"{there}: {now - begun:.0f} s of at most {seconds:g} s")
            said = now
        time.sleep(PAUSE)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep paramiko from printing a traceback each time that something takes a connection and says nothing."""
    logger = logging.getLogger("paramiko.transport")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)


def _look(state: State, host: Host) -> Life | None:
    try:
        with gevent.Timeout(PATIENCE, TimeoutError):
            if not host.connected:
                host.connect(show_errors=False)
            answer = run(state, host, LOOK, timeout=PATIENCE) if host.connected else None
    except (TimeoutError, OSError, EOFError, SSHException):
        answer = None
    life = parse(answer.output) if answer and answer.ok else Life()
    if life.boot_id:
        return life
    forget(host)
    return None
