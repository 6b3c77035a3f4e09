"""Field reports about apt and dpkg: their recorded inputs, and the sentence that the user reads."""

from __future__ import annotations

from dataclasses import replace
from fcntl import LOCK_EX, lockf
from pathlib import Path

import pytest

from roles.base.apt import Apt, Repository, without
from roles.base.machine import UNFINISHED, parse, unfinished
from tests.unit.base.debian import Debian
from tests.unit.cluster.examples import head, plan_of, worker

DOCKER = Repository(
    "docker",
    "https://download.docker.com/linux/ubuntu",
    ("noble",),
    ("stable",),
    "https://download.docker.com/linux/ubuntu/gpg",
    "9DC858229FC7DD38854AE2D88D81803C0EBFCD88",
)
LINE = "deb [arch=amd64 signed-by=/etc/apt/keyrings/docker.asc] https://download.docker.com/linux/ubuntu noble stable\n"
STANZA = (
    "Types: deb\nURIs: https://download.docker.com/linux/ubuntu\nSuites: noble\nComponents: stable\nSigned-By: /x/docker.gpg\n"
)


@pytest.fixture
def debian(tmp_path: Path) -> Debian:
    return Debian(tmp_path)


def test_b11_an_older_file_with_another_key_ends_as_one_source() -> None:
    seen = Apt({"/etc/apt/sources.list.d/docker.list": LINE, "/etc/apt/sources.list.d/archive.sources": STANZA})
    assert without(seen.files, DOCKER) == dict.fromkeys(seen.files, "")


def test_b11_entries_of_another_repository_that_contradict_each_other_are_named(debian: Debian) -> None:
    """Ours cannot mend them: which key is right is the user's to say."""
    (debian.etc / "sources.list.d/docker.list").write_text(LINE)
    (debian.etc / "sources.list.d/docker.sources").write_text(STANZA)
    ended = debian.script("refresh")
    assert ended.status == 3
    assert ended.log[-1] == (
        "w1: the package lists could not be refreshed (Conflicting values set for option Signed-By regarding source"
        " https://download.docker.com/linux/ubuntu/ noble: /etc/apt/keyrings/docker.asc != /x/docker.gpg): see to it with"
        " `apt-get update` there, then run again."
    )


def test_b23_a_lock_that_is_never_let_go_is_named(debian: Debian) -> None:
    """apt's message is the one of the report; the clock runs ten minutes between two looks at it."""
    held = "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 2180 (unattended-upgr)"
    acquire = "E: Unable to acquire the dpkg frontend lock (/var/lib/dpkg/lock-frontend), is another process using it?"
    debian.plays("apt-get", f"echo '{held}'; echo '{acquire}'; exit 100")
    debian.plays("date", f"echo x >>{debian.root}/clock; echo $(($(wc -l <{debian.root}/clock) * 601))")
    ended = debian.script("refresh_lists")
    assert ended.status == 3
    assert ended.log[-1] == (
        "w1: another program holds apt's lock for too long (Could not get lock /var/lib/dpkg/lock-frontend. It is held by"
        " process 2180 (unattended-upgr)): end it, then run again."
    )


INTERRUPTED = ["unfinished half-configured nvidia-kernel-dkms", "unfinished unpacked libcuda1", "unfinished unpacked libcuda1"]


def test_a_half_configured_dpkg_is_named_before_the_run(debian: Debian) -> None:
    there = parse(INTERRUPTED).unfinished
    assert there == ("nvidia-kernel-dkms", "libcuda1")
    w1 = worker()
    plan = plan_of([replace(w1, machine=replace(w1.machine, unfinished=there)), head()])
    assert plan.refusals == ()
    assert plan.warnings == (
        "w1: dpkg was interrupted with nvidia-kernel-dkms, libcuda1 half-configured; it is finished before anything is"
        " installed.",
    )


def unfinished_of(debian: Debian) -> tuple[str, ...]:
    """What our fact shows of it."""
    return unfinished(
        debian.run("sh", "-c", UNFINISHED.replace("/var/lib/dpkg", f"{debian.root}/var/lib/dpkg")).stdout.splitlines()
    )


def test_what_a_package_manager_at_work_is_in_the_middle_of_is_no_fault(debian: Debian) -> None:
    states = {"picky": "half-configured", "initramfs-tools": "triggers-pending", "bash": "installed", "old": "config-files"}
    (debian.root / "var/lib/dpkg/status").write_text(
        "\n".join(
            f"Package: {name}\nStatus: install ok {state}\nArchitecture: amd64\nVersion: 1\nMaintainer: x\nDescription: x\n"
            + ("Triggers-Pending: update\n" if state == "triggers-pending" else "")
            for name, state in states.items()
        )
    )
    assert unfinished_of(debian) == ("picky",)
    with (debian.root / "var/lib/dpkg/lock").open("w") as lock:
        lockf(lock, LOCK_EX)
        assert unfinished_of(debian) == ()
    assert unfinished_of(debian) == ("picky",)
