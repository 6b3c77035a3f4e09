"""What several roles share."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Generator
from hashlib import sha256

from pyinfra import host
from pyinfra.api import FunctionCommand, StringCommand, operation
from pyinfra.api.host import Host
from pyinfra.api.state import State

from roles.base.facts import MissingPackagesFact
from roles.base.remote import complain, run, say

WORK = "/var/lib/gpuquilt/work"
"""Where long work keeps its script, its log and its exit status."""

Commands = Generator[StringCommand | FunctionCommand, None, None]


@operation()
def packages(names: list[str]) -> Commands:
    """Install the named Debian packages that are missing; the package lists are refreshed only then.

    :param names: package names; what is installed is left at its version
    """
    missing = host.get_fact(MissingPackagesFact, names=names)
    if not missing:
        host.noop("all packages are installed")
        return
    wanted = " ".join(shlex.quote(name) for name in missing)
    install = "DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends"
    yield from long_work("packages", f"set -e\napt-get update\n{install} {wanted}\n")


def long_work(name: str, script: str, progress: Callable[[str], str] = str, prefix: str = "gpuquilt") -> Commands:
    """Commands that run a shell script as a transient unit of systemd, and follow it to its end.

    The script goes on when the connection or the controller dies; a later run follows what still runs instead of
    starting it twice, and starts anew what died. A unit of the same name with another script is stopped first.

    :param name: names the unit (``gpuquilt-NAME.service``) and its folder below `WORK`
    :param script: a POSIX shell script; what it prints goes to the log
    :param progress: makes the sentence that is shown out of the log's last line
    """
    yield FunctionCommand(_follow, (f"{prefix}-{name}", script, progress), {})


def _follow(state: State, host: Host, unit: str, script: str, progress: Callable[[str], str]) -> bool:
    started = run(state, host, _start(unit, script))
    if not started.ok:
        complain(host, f"{host.name}: {unit} could not be started: {_last(started.errors)}")
        return False
    shown = ""
    silent_since = time.monotonic()
    while True:
        answer = run(state, host, _look(unit))
        status, _, line = (answer.output or [""])[0].partition(" ")
        if status == "gone" or not answer.ok:
            complain(host, f"{host.name}: {unit} ended without a result ({_last(answer.errors)}); run again to go on.")
            return False
        if status != "running":
            return _ended(state, host, unit, status)
        sentence = progress(line)
        if sentence != shown and time.monotonic() - silent_since >= 5:
            say(host, sentence)
            shown, silent_since = sentence, time.monotonic()
        time.sleep(1)


def _ended(state: State, host: Host, unit: str, status: str) -> bool:
    if status == "0":
        return True
    log = run(state, host, f"tail -n 20 {WORK}/{unit}/log")
    for line in log.output:
        complain(host, f"    {line}")
    complain(host, f"{host.name}: {unit} failed (exit status {status}); the whole log is {WORK}/{unit}/log there.")
    return False


def _start(unit: str, script: str) -> str:
    folder = f"{WORK}/{unit}"
    digest = sha256(script.encode()).hexdigest()
    # The status is written last and by rename: a script that dies in the middle leaves none.
    runner = f"sh {folder}/script >{folder}/log 2>&1; echo $? >{folder}/status.new; mv {folder}/status.new {folder}/status"
    return f"""set -e
mkdir -p {folder}
if systemctl is-active --quiet {unit}; then
    [ "$(sha256sum <{folder}/script | cut -c -64)" = {digest} ] && exit 0
    systemctl stop {unit}
fi
rm -f {folder}/status
printf %s {shlex.quote(script)} >{folder}/script
: >{folder}/log
systemd-run --quiet --collect --unit={unit} --property=Type=exec sh -c {shlex.quote(runner)}"""


def _look(unit: str) -> str:
    """One line: ``running LOG-LINE``, an exit status, or ``gone``."""
    folder = f"{WORK}/{unit}"
    # Activity is asked first: a unit that ends between the two questions has written its status by then.
    return f"""active=$(systemctl is-active {unit})
case $active in
active|activating) echo "running $(tail -c 400 {folder}/log | tr '\\r' '\\n' | grep . | tail -n 1)" ;;
*) cat {folder}/status 2>/dev/null || echo gone ;;
esac"""


def _last(lines: list[str]) -> str:
    return lines[-1] if lines else "no reason was given"
