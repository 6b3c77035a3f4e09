"""Packages are installed as they were judged, finished when they were interrupted, and purged alone: real apt, real dpkg."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from pyinfra.api.host import Host
from pyinfra.api.state import State

from roles.base import apt, operations
from roles.base.remote import Answer
from tests.unit.base.debian import Debian, Ended, Key, make_key, make_package, publish

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="dpkg unpacks only as root")


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Key:
    return make_key(tmp_path_factory.mktemp("key"))


@pytest.fixture
def debian(tmp_path: Path, key: Key) -> Debian:
    """A host with a repository: tool needs library, which contradicts old; at first picky cannot be configured, nor clingy go."""
    packages = [
        make_package(tmp_path, "library", "2.0", Breaks="old"),
        make_package(tmp_path, "tool", "1.0", Depends="library (>= 2)"),
        make_package(tmp_path, "old", "1.0"),
        make_package(tmp_path, "user", "1.0", Depends="library"),
        make_package(tmp_path, "picky", "1.0", postinst=f"[ -e {tmp_path}/ready ]"),
        make_package(tmp_path, "clingy", "1.0", prerm=f"[ -e {tmp_path}/ready ]"),
        make_package(tmp_path, "cut", "1.0", preinst=f"[ -e {tmp_path}/ready ] || kill -9 $PPID"),
        make_package(tmp_path, "struck", "1.0", postrm=f"[ -e {tmp_path}/ready ] || kill -9 $PPID"),
    ]
    debian = Debian(tmp_path / "host")
    uri = publish(tmp_path / "vendor", key, packages)
    (debian.etc / "sources.list").write_text(f"deb [signed-by={key.file}] {uri} bookworm main\n")
    return debian


def simulate(debian: Debian, *command: str) -> list[str]:
    return debian.run("apt-get", "--simulate", *command).stdout.splitlines()


def install(debian: Debian, *names: str) -> Ended:
    """What `chosen_packages` does on a host; the log is that of all."""
    refreshed = debian.script("refresh")
    assert refreshed.status == 0, refreshed.log
    command = apt.install_command(names, moved=False)
    output = simulate(debian, *command)
    new = [change.package for change in apt.changes(output) if not change.before]
    ended = debian.script("install_packages", "tools", apt.digest(output), " ".join(new), *command)
    return Ended(ended.status, [*refreshed.log, *ended.log])


@pytest.fixture
def on_it(debian: Debian, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Operations work on that host; what the user reads is collected."""
    said: list[str] = []

    def run(state: object, host: object, command: str, timeout: int = 60) -> Answer:
        ended = debian.run("sh", "-c", command.replace("/var/lib/dpkg", f"{debian.root}/var/lib/dpkg"))
        return Answer(ended.returncode == 0, ended.stdout.splitlines(), ended.stderr.splitlines())

    def follow(state: object, host: object, unit: str, script: str, progress: object) -> bool:
        ended = debian.long_work(script)
        said.extend(ended.log[-1:] if ended.status == operations.SAID else [])
        return ended.status == 0

    monkeypatch.setattr(operations, "run", run)
    monkeypatch.setattr(operations, "_follow", follow)
    for name in ("say", "complain"):
        monkeypatch.setattr(operations, name, lambda host, sentence: said.append(sentence))
    return said


W1 = SimpleNamespace(name="w1")


def chosen(name: str, *names: str, judge: operations.Judge = operations.accepted, removable: str = "") -> bool:
    """The command that `chosen_packages` yields where these packages are missing."""
    done = operations._install(cast(State, None), cast(Host, W1), name, list(names), judge, lambda it: it == removable, False)
    assert isinstance(done, bool)
    return done


def test_the_judge_reads_every_change_and_has_the_last_word(debian: Debian, on_it: list[str]) -> None:
    read: list[apt.Change] = []

    def judge(changes: list[apt.Change]) -> list[str]:
        read.extend(changes)
        return ["library 2.0 would come from Vendor."]

    assert not chosen("tools", "tool", judge=judge)
    assert [(change.package, change.version, change.origin) for change in read] == [
        ("library", "2.0", "Vendor:bookworm"),
        ("tool", "1.0", "Vendor:bookworm"),
    ]
    assert on_it == ["w1: library 2.0 would come from Vendor."]
    assert debian.installed() == {}
    assert chosen("tools", "tool")
    assert set(debian.record("tools").states) == {"tool", "library"}
    assert operations._purge(cast(State, None), cast(Host, W1), "tools", ["tool", "library"])
    assert debian.installed() == {}


def test_only_what_may_go_is_removed_for_it(debian: Debian, on_it: list[str]) -> None:
    debian.script("refresh")
    debian.run("apt-get", "install", "--yes", "old")
    assert not chosen("tools", "tool")
    assert on_it[0].startswith("w1: apt would remove old to install what is needed")
    assert set(debian.installed()) == {"old"}
    assert chosen("tools", "tool", removable="old")
    assert set(debian.installed()) == {"tool", "library"}


def test_what_is_half_configured_is_named_and_finished_first(debian: Debian, on_it: list[str], tmp_path: Path) -> None:
    install(debian, "picky")
    (tmp_path / "ready").touch()
    assert chosen("tools", "tool")
    assert on_it == ["dpkg was interrupted with picky half-configured; it is finished first"]
    assert set(debian.installed()) == {"picky", "tool", "library"}


def test_nothing_is_purged_with_which_something_else_would_go(debian: Debian, on_it: list[str]) -> None:
    install(debian, "tool")
    debian.run("apt-get", "install", "--yes", "user")
    stop = f"touch {debian.root}/stopped"
    assert not operations._purge(cast(State, None), cast(Host, W1), "tools", ["library", "tool"], stop)
    assert not (debian.root / "stopped").exists()
    assert on_it[0].startswith("w1: user would be changed or removed")
    assert set(debian.installed()) == {"tool", "library", "user"}
    assert debian.record("tools").kept


def test_nothing_is_purged_where_what_comes_before_fails(debian: Debian, on_it: list[str]) -> None:
    install(debian, "tool")
    stop = "echo 'it does not stop' >&2; exit 1"
    assert not operations._purge(cast(State, None), cast(Host, W1), "tools", ["library", "tool"], stop)
    assert on_it == ["w1: nothing was removed (it does not stop): see to it, then run again."]
    assert set(debian.installed()) == {"tool", "library"}


def purge(debian: Debian, name: str) -> Ended:
    names = sorted(debian.record(name).states)
    settled = debian.script("settle")
    assert settled.status == 0, settled.log
    output = simulate(debian, "purge", *names) if names else []
    return debian.script("purge_packages", name, apt.digest(output), *names)


def test_it_is_installed_and_written_down_with_what_it_needs(debian: Debian) -> None:
    ended = install(debian, "tool")
    assert ended.status == 0, ended.log
    assert debian.installed() == {"tool": "1.0", "library": "2.0"}
    record = debian.record("tools")
    assert record.states == {"tool": "installed", "library": "installed"}
    assert not record.unfinished


def test_what_was_there_before_is_not_ours(debian: Debian) -> None:
    debian.script("refresh")
    debian.run("apt-get", "install", "--yes", "library")
    assert install(debian, "tool").status == 0
    assert set(debian.record("tools").states) == {"tool"}
    assert purge(debian, "tools").status == 0
    assert set(debian.installed()) == {"library"}


def test_it_is_purged_and_forgotten(debian: Debian) -> None:
    install(debian, "tool")
    assert purge(debian, "tools").status == 0
    assert debian.installed() == {}
    assert not debian.record("tools").kept


def test_what_could_not_be_purged_is_not_forgotten(debian: Debian, tmp_path: Path) -> None:
    install(debian, "clingy")
    ended = purge(debian, "tools")
    assert ended.status == 3
    assert ended.log[-1].startswith("w1: the packages could not be removed (dpkg: error processing package clingy (--remove): ")
    assert set(debian.record("tools").states) == {"clingy"}
    (tmp_path / "ready").touch()
    assert purge(debian, "tools").status == 0
    assert debian.installed() == {}
    assert not debian.record("tools").kept


def test_a_purge_goes_on_where_dpkg_was_interrupted(debian: Debian) -> None:
    install(debian, "tool")
    (debian.root / "var/lib/dpkg/updates/0000").write_text("")
    ended = purge(debian, "tools")
    assert ended.status == 0, ended.log
    assert debian.installed() == {}


def test_an_unpacking_that_was_broken_off_is_finished(debian: Debian, tmp_path: Path) -> None:
    install(debian, "cut")
    assert debian.record("tools").states == {"cut": "half-installed"}
    (tmp_path / "ready").touch()
    ended = debian.script("refresh")
    assert ended.status == 0, ended.log
    assert debian.record("tools").states == {"cut": "installed"}


def test_a_removal_that_was_broken_off_is_finished(debian: Debian, tmp_path: Path) -> None:
    install(debian, "struck")
    assert purge(debian, "tools").status == 3
    assert debian.record("tools").states == {"struck": "half-installed"}
    (tmp_path / "ready").touch()
    ended = debian.script("refresh")
    assert ended.status == 0, ended.log
    assert debian.record("tools").states == {}


def test_what_was_not_even_unpacked_can_be_purged(debian: Debian, tmp_path: Path) -> None:
    install(debian, "cut")
    (tmp_path / "ready").touch()
    ended = purge(debian, "tools")
    assert ended.status == 0, ended.log
    assert not debian.record("tools").kept


def test_a_purge_that_was_broken_off_is_finished(debian: Debian, tmp_path: Path) -> None:
    install(debian, "struck")
    assert purge(debian, "tools").status == 3
    (tmp_path / "ready").touch()
    ended = purge(debian, "tools")
    assert ended.status == 0, ended.log
    assert not debian.record("tools").kept


def test_nothing_is_installed_that_was_not_judged(debian: Debian) -> None:
    debian.script("refresh")
    command = apt.install_command(["tool"], moved=False)
    ended = debian.script("install_packages", "tools", apt.digest([]), "tool", *command)
    assert ended.status == 3
    assert ended.log[-1] == "w1: what apt would do has changed since it was looked at: run again."
    assert debian.installed() == {}
    assert not debian.record("tools").kept


def test_a_package_that_was_left_half_configured_is_finished(debian: Debian, tmp_path: Path) -> None:
    broken = install(debian, "picky")
    assert broken.status == 3
    assert broken.log[-1] == (
        "w1: apt did not come to its end (dpkg: error processing package picky (--configure): installed picky package"
        f" post-installation script subprocess returned error exit status 1): what led to it is in"
        f" {debian.root}/work/log there; see to it, then run again."
    )
    assert debian.record("tools").unfinished
    (tmp_path / "ready").touch()
    ended = debian.script("refresh")
    assert ended.status == 0
    assert ended.log[0] == "finishing what dpkg was interrupted in: picky "
    assert debian.record("tools").states == {"picky": "installed"}


def test_one_that_was_only_unpacked_is_finished(debian: Debian, tmp_path: Path) -> None:
    """Its dependency is not even there: `dpkg --configure -a` cannot help, apt can."""
    ended = debian.run("dpkg", "--unpack", str(tmp_path / "tool_1.0_amd64.deb"))
    assert ended.returncode == 0, ended.stderr
    debian.run("apt-get", "update")
    assert debian.script("refresh").status == 0
    assert set(debian.installed()) == {"tool", "library"}


def test_one_that_cannot_be_finished_is_named(debian: Debian) -> None:
    install(debian, "picky")
    ended = debian.script("refresh")
    assert ended.status == 3
    assert ended.log[-1] == (
        "w1: dpkg cannot finish picky (dpkg: error processing package picky (--configure): installed picky package"
        " post-installation script subprocess returned error exit status 1): see to it with `dpkg --configure -a` there, then"
        " run again."
    )


@contextmanager
def held(debian: Debian, lock: str) -> Iterator[None]:
    """Another process holds a lock as apt and dpkg do, and lets it go when the log says that it is waited for."""
    code = """
import fcntl, pathlib, sys, time
file, log = open(sys.argv[1], "w"), pathlib.Path(sys.argv[2])
fcntl.lockf(file, fcntl.LOCK_EX)
print(flush=True)
end = time.monotonic() + 40
while "aiting for" not in log.read_text() and time.monotonic() < end:
    time.sleep(0.1)
"""
    command = ["python3", "-c", code, str(debian.root / lock), str(debian.root / "work/log")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield


@pytest.mark.parametrize("lock", ["var/lib/dpkg/lock-frontend", "var/lib/apt/lists/lock", "var/cache/apt/archives/lock"])
def test_a_lock_that_another_program_holds_is_waited_for(debian: Debian, lock: str) -> None:
    """Field report B23."""
    debian.script("refresh")
    with held(debian, lock):
        ended = install(debian, "tool")
    assert ended.status == 0, ended.log
    assert [line for line in ended.log if "aiting for" in line and "lock" in line]
    assert "tool" in debian.installed()


def test_dpkgs_lock_is_waited_for_when_it_has_to_finish_something(debian: Debian, tmp_path: Path) -> None:
    install(debian, "picky")
    (tmp_path / "ready").touch()
    with held(debian, "var/lib/dpkg/lock-frontend"):
        ended = debian.script("refresh")
    assert ended.status == 0, ended.log
    assert "waiting for another program that holds the lock of apt or dpkg" in ended.log
