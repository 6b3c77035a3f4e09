"""What several roles share."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Generator
from hashlib import sha256
from pathlib import PurePosixPath
from posixpath import dirname

from pyinfra import host
from pyinfra.api import FunctionCommand, StringCommand, operation
from pyinfra.api.host import Host
from pyinfra.api.state import State

from roles.base import apt, download
from roles.base.apt import Change, Repository
from roles.base.download import Download
from roles.base.facts import AptFact, CheckoutFact, DownloadsFact, MissingPackagesFact, RecordFact
from roles.base.machine import UNFINISHED, unfinished
from roles.base.remote import complain, run, say

WORK = "/var/lib/gpuquilt/work"
"""Where long work keeps its script, its log and its exit status."""

SAID = 3
"""The exit status of a script that has said why it failed, for the user, in the last line of its log."""

Commands = Generator[StringCommand | FunctionCommand, None, None]


Judge = Callable[[list[Change]], list[str]]
"""Reads a simulated installation, and says what speaks against it: sentences without the host's name."""


def accepted(changes: list[Change]) -> list[str]:
    """Nothing speaks against it."""
    return []


def kept(package: str) -> bool:
    """No package may be removed."""
    return False


@operation()
def packages(names: list[str]) -> Commands:
    """Install the named Debian packages that are missing; the package lists are refreshed only then.

    :param names: package names; what is installed is left at its version
    """
    yield from _chosen("base", names, accepted, kept, False)


@operation()
def chosen_packages(
    record: str, packages: list[str], judge: Judge = accepted, removable: Callable[[str], bool] = kept, moved: bool = False
) -> Commands:
    """Install those of the packages that are missing, once what apt would do has been read.

    What dpkg was interrupted in is finished first. Where the judge has anything to say, or a package would be removed that
    may not be, the operation fails with that, and nothing is installed. What was not there before is written down below
    `RECORDS`, for `remove_packages`.

    :param record: names what was written down, and the transient unit that installs
    :param packages: package names; what is installed is left at its version, unless it is to move
    :param judge: is given every package that would be installed, changed or removed
    :param removable: whether a package may be removed for it, by its name
    :param moved: those that are there are to move to the version that the pins want, an older one included
    """
    yield from _chosen(record, packages, judge, removable, moved)


def _chosen(record: str, names: list[str], judge: Judge, removable: Callable[[str], bool], moved: bool) -> Commands:
    missing = host.get_fact(MissingPackagesFact, names=names)
    if moved or missing or host.get_fact(RecordFact, record=record).unfinished:
        yield FunctionCommand(_install, (record, names if moved else missing, judge, removable, moved), {})
    else:
        host.noop("all packages are installed")


def _install(
    state: State, host: Host, record: str, names: list[str], judge: Judge, removable: Callable[[str], bool], moved: bool
) -> bool:
    """Refresh, simulate, judge, install. The script that installs simulates once more, because lists may have changed."""
    interrupted = unfinished(run(state, host, f"{UNFINISHED}true").output)
    if interrupted:
        say(host, f"dpkg was interrupted with {', '.join(interrupted)} half-configured; it is finished first")
    if not _follow(state, host, "gpuquilt-apt", apt.script(host.name, "refresh"), str):
        return False
    if not names:
        return True
    command = apt.install_command(names, moved)
    answer = run(state, host, _simulation(command), timeout=300)
    if not answer.ok:
        complain(host, f"{host.name}: {apt.simulation_failed(answer.output, answer.errors)}")
        return False
    found = apt.changes(answer.output)
    sentences = [*judge(found), *apt.unwanted_removals(found, removable)]
    for sentence in sentences:
        complain(host, f"{host.name}: {sentence}")
    if sentences or not found:
        return not sentences
    new = [change.package for change in found if change.action == "install" and not change.before]
    script = apt.script(host.name, "install_packages", record, apt.digest(answer.output), " ".join(new), *command)
    return _follow(state, host, f"gpuquilt-install-{record}", script, str)


@operation()
def remove_packages(record: str, before: str = "true") -> Commands:
    """Purge what came by us under a name, and forget it; refused where anything else would go, too.

    :param record: as it was given to `chosen_packages`
    :param before: a shell command for the host, once it is sure that they may go
    """
    found = host.get_fact(RecordFact, record=record)
    if found.kept:
        yield FunctionCommand(_purge, (record, sorted(found.states), before), {})
    else:
        host.noop("no package came by us")


def _purge(state: State, host: Host, record: str, names: list[str], before: str = "true") -> bool:
    simulated = []
    if names:
        if not _follow(state, host, "gpuquilt-apt", apt.script(host.name, "settle"), str):
            return False
        answer = run(state, host, _simulation(["purge", *names]), timeout=300)
        if not answer.ok:
            complain(host, f"{host.name}: {apt.simulation_failed(answer.output, answer.errors)}")
            return False
        simulated = answer.output
        sentences = apt.unwanted_losses(apt.changes(simulated), names)
        for sentence in sentences:
            complain(host, f"{host.name}: {sentence}")
        if sentences:
            return False
        answer = run(state, host, before, timeout=300)
        if not answer.ok:
            complain(host, f"{host.name}: nothing was removed ({_last(answer.errors)}): see to it, then run again.")
            return False
    script = apt.script(host.name, "purge_packages", record, apt.digest(simulated), *names)
    return _follow(state, host, f"gpuquilt-install-{record}", script, str)


def _simulation(command: list[str]) -> str:
    return f"LC_ALL=C apt-get --simulate {shlex.join(command)}"


@operation()
def repository(repository: Repository) -> Commands:
    """Have a repository, once: its key, one source file, and no other entry for it in whichever file.

    Nothing is changed before the host has fetched the key, found the fingerprint right, and read the repository with it.
    """
    seen = host.get_fact(AptFact)
    others = apt.without(seen.files, repository)
    key_is_right = repository.fingerprint.upper() in seen.keys.get(repository.key_file, ())
    if key_is_right and not others and seen.files.get(repository.file) == repository.text and seen.has_lists(repository):
        host.noop(f"{repository.uri} is a source")
        return
    script = apt.script(
        host.name,
        "add_repository",
        "" if key_is_right else repository.key,
        repository.fingerprint,
        apt.below(repository.key_file),
        apt.below(repository.file),
        repository.text,
        " ".join(seen.missing),
        *(word for path, text in others.items() for word in (apt.below(path), text)),
    )
    yield from long_work(f"repository-{repository.name}", script)


@operation()
def no_repository(repository: str) -> Commands:
    """Take the source file of a repository and its key away.

    :param repository: the name of the `Repository`
    """
    seen = host.get_fact(AptFact)
    files = [path for path in apt.files_of(repository) if path in seen.files or path in seen.keys]
    if files:
        yield StringCommand(f"rm -f {shlex.join(files)}")
    else:
        host.noop("there is no such source")


@operation()
def components(names: list[str]) -> Commands:
    """Switch on components of the distribution's own archive; their lists come with the next installation.

    :param names: e.g. ``non-free-firmware``, in addition to those that were switched on by us before; none: those are
        switched off again
    """
    seen = host.get_fact(AptFact)
    wanted = apt.components_text(seen, names) if names else ""
    path = apt.COMPONENTS
    if wanted == seen.files.get(path, ""):
        host.noop("they are switched on" if names else "none was switched on by us")
    elif wanted:
        yield StringCommand(f"printf %s {shlex.quote(wanted)} >{path}.new && mv {path}.new {path}")
    else:
        yield StringCommand(f"rm {path}")


def written(path: str, text: str, mode: str = "") -> StringCommand:
    """The command that puts a text into a file, all of it or nothing; its folder is made.

    :param path: absolute, without a character that means something to a shell
    :param mode: of the file, as chmod has it; empty: as the umask has it
    """
    new = f"{path}.new"
    chmod = f" && chmod {mode} {new}" if mode else ""
    return StringCommand(f"mkdir -p {dirname(path)} && printf %s {shlex.quote(text)} >{new}{chmod} && mv {new} {path}")


def long_work(name: str, script: str, progress: Callable[[str], str] = str) -> Commands:
    """Commands that run a shell script as a transient unit of systemd, and follow it to its end.

    The script goes on when the connection or the controller dies; a later run follows what still runs instead of
    starting it twice, and starts anew what died. A unit of the same name with another script is stopped first.

    :param name: names the unit (``gpuquilt-NAME.service``) and its folder below `WORK`
    :param script: a POSIX shell script; what it prints goes to the log
    :param progress: makes the sentence that is shown out of the log's last line
    """
    yield FunctionCommand(_follow, (f"gpuquilt-{name}", script, progress), {})


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
    if status == str(SAID):
        complain(host, _last(run(state, host, f"tail -n 1 {WORK}/{unit}/log").output))
        return False
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
active|activating) printf 'running %s\\n' "$(tail -c 400 {folder}/log | tr '\\r' '\\n' | grep . | tail -n 1)" ;;
*) cat {folder}/status 2>/dev/null || echo gone ;;
esac"""


def _last(lines: list[str]) -> str:
    return lines[-1] if lines else "no reason was given"


@operation()
def verified_downloads(work: str, downloads: list[Download], reader: str) -> Commands:
    """Have these files on the host, each with its SHA-256; a file of the same name stays until the new one is verified.

    :param work: names the transient unit that does it, see `long_work`
    :param reader: the system user who is to read them
    """
    found = host.get_fact(DownloadsFact, downloads=downloads, reader=reader)
    problems = [f"{host.name}: {problem}" for problem in download.problems(downloads, found)]
    if problems:
        yield StringCommand(f"printf '%s\\n' {shlex.join(problems)} >&2; exit 1")
    elif all(seen.state == "verified" for seen in found):
        host.noop("all files are verified")
    else:
        yield from long_work(work, download.script(host.name, downloads, reader))


@operation()
def pinned_checkout(repository: str, commit: str, folder: str) -> Commands:
    """Have exactly one commit of a git repository in a folder: shallow, detached, nothing changed, nothing left of another.

    :param repository: any URL that git understands, or an absolute path on the host
    :param commit: all 40 hexadecimal digits
    :param folder: absolute path; what is there is exchanged as a whole once the new checkout is complete
    """
    if host.get_fact(CheckoutFact, folder=folder) == commit:
        host.noop(f"{folder} is at {commit}")
        return
    yield FunctionCommand(_check_out, (repository, commit, folder), {})


def _check_out(state: State, host: Host, repository: str, commit: str, folder: str) -> bool:
    say(host, f"fetching {commit[:12]} from {repository}")
    answer = run(state, host, _fetch_and_exchange(repository, commit, folder), timeout=3600)
    if answer.ok:
        return True
    said = [line for line in answer.errors if line.startswith(("fatal:", "error:"))] or answer.errors[-1:]
    if any("not our ref" in line or "unknown commit" in line for line in said):
        complain(host, f"{host.name}: {repository} has no commit {commit}: correct the commit, or name a repository that has it.")
    else:
        reason = said[0] if said else "no reason was given"
        complain(host, f"{host.name}: {commit} could not be fetched from {repository} ({reason}): see to it, then run again.")
    return False


def _fetch_and_exchange(repository: str, commit: str, folder: str) -> str:
    new = shlex.quote(f"{folder}.new")
    git = f"git -C {new}"
    # Asked for a password or a host key, git would wait for a person who is not there.
    return f"""set -e
export LC_ALL=C GIT_TERMINAL_PROMPT=0 GIT_SSH_COMMAND='ssh -o BatchMode=yes'
mkdir -p {shlex.quote(str(PurePosixPath(folder).parent))}
rm -rf {new}
trap 'rm -rf {new}' EXIT
git init -q {new}
everything() {{ {git} fetch -q {shlex.quote(repository)} '+refs/*:refs/fetched/*'; }}
if ! said=$({git} fetch -q --depth 1 {shlex.quote(repository)} {commit} 2>&1); then
    case $said in
    *unadvertised*|*shallow*) everything ;;
    *) echo "$said" >&2; exit 1 ;;
    esac
fi
if [ "$({git} rev-parse -q --verify {commit}^{{commit}})" != {commit} ]; then
    echo "error: unknown commit" >&2
    exit 1
fi
{git} -c advice.detachedHead=false checkout -q --detach --force {commit}
rm -rf {shlex.quote(folder)}
mv {new} {shlex.quote(folder)}"""
