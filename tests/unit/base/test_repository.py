"""A repository ends as one source with one key, on real apt, however it stood there before; a bad one changes nothing."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from roles.base.apt import Repository, release_files, without
from tests.unit.base.debian import Debian, Key, make_key, make_package, publish


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Key:
    return make_key(tmp_path_factory.mktemp("key"))


@pytest.fixture
def debian(tmp_path: Path) -> Debian:
    return Debian(tmp_path / "host")


@pytest.fixture
def repository(tmp_path: Path, key: Key) -> Repository:
    package = make_package(tmp_path, "docker-ce")
    uri = publish(tmp_path / "vendor", key, [package])
    return Repository("docker", uri, ("bookworm",), ("main",), f"file://{key.file}", key.fingerprint)


def broken_apt(debian: Debian) -> str:
    """What apt says; empty where it works."""
    return debian.run("apt-get", "indextargets").stderr


def is_right(debian: Debian, repository: Repository) -> bool:
    """What the operation asks before it does nothing."""
    seen = debian.look()
    return (
        repository.fingerprint in seen.keys.get(repository.key_file, ())
        and seen.files.get(repository.file) == repository.text
        and seen.has_lists(repository)
        and not without(seen.files, repository)
    )


def test_it_is_added_and_then_nothing_is_left_to_do(debian: Debian, repository: Repository) -> None:
    assert not is_right(debian, repository)
    ended = debian.add(repository)
    assert ended.status == 0, ended.log
    assert set(debian.files()) == {"sources.list.d/gpuquilt-docker.sources", "keyrings/gpuquilt-docker.asc"}
    assert is_right(debian, repository)
    policy = debian.run("apt-cache", "policy", "docker-ce").stdout
    assert "Candidate: 1.0" in policy


def test_a_binary_key_is_stored_as_apt_reads_it(debian: Debian, repository: Repository, tmp_path: Path) -> None:
    key = make_key(tmp_path / "binary", armoured=False)
    package = make_package(tmp_path / "binary", "docker-ce")
    uri = publish(tmp_path / "binary/vendor", key, [package])
    other = replace(repository, uri=uri, key=f"file://{key.file}", fingerprint=key.fingerprint)
    assert debian.add(other).status == 0
    assert debian.files()["keyrings/gpuquilt-docker.asc"].startswith("-----BEGIN PGP PUBLIC KEY BLOCK-----")
    assert is_right(debian, other)


def test_an_apt_that_contradicting_entries_have_broken_works_again(debian: Debian, repository: Repository) -> None:
    """Field report B11."""
    lists = debian.etc / "sources.list.d"
    line = f"deb [arch=amd64 signed-by={debian.etc}/keyrings/docker.gpg] {repository.uri} bookworm main\n"
    (lists / "docker.list").write_text(line)
    (lists / "archive.sources").write_text(
        f"Types: deb\nURIs: {repository.uri}/\nSuites: bookworm other\nComponents: main\nSigned-By: {debian.etc}/docker.asc\n"
    )
    assert "Conflicting values set for option Signed-By" in broken_apt(debian)
    ended = debian.add(repository)
    assert ended.status == 0, ended.log
    assert not (lists / "docker.list").exists()
    assert "Suites: other\n" in (lists / "archive.sources").read_text()
    assert "Conflicting" not in broken_apt(debian)
    assert is_right(debian, repository)


@pytest.mark.skipif(os.geteuid() != 0, reason="dpkg unpacks only as root")
def test_what_the_key_needs_is_installed_by_an_apt_that_is_broken_before(
    debian: Debian, repository: Repository, key: Key, tmp_path: Path
) -> None:
    own = publish(tmp_path / "own", key, [make_package(tmp_path, "gpg")])
    (debian.etc / "sources.list").write_text(f"deb [signed-by={key.file}] {own} bookworm main\n")
    for name in ("one", "two"):
        line = f"deb [signed-by=/{name}.asc] {repository.uri} bookworm main\n"
        (debian.etc / f"sources.list.d/{name}.list").write_text(line)
    assert "Conflicting values set for option Signed-By" in broken_apt(debian)
    ended = debian.add(repository, missing="gpg")
    assert ended.status == 0, ended.log
    assert set(debian.installed()) == {"gpg"}
    assert is_right(debian, repository)


def nothing_changed(debian: Debian, repository: Repository) -> list[str]:
    """The log of a run that fails, and leaves every file as it was."""
    (debian.etc / "sources.list.d/docker.list").write_text(f"deb [trusted=yes] {repository.uri} bookworm main\n")
    before = debian.files()
    ended = debian.add(repository)
    assert ended.status == 3
    assert debian.files() == before
    return ended.log


def test_another_key_than_the_one_that_is_wanted_is_refused(debian: Debian, repository: Repository, key: Key) -> None:
    wrong = replace(repository, fingerprint="0" * 40)
    (sentence,) = nothing_changed(debian, wrong)[-1:]
    assert sentence == (
        f"w1: {repository.key} is not the key {'0' * 40} (it holds {key.fingerprint}): correct the fingerprint or the address;"
        " nothing was changed."
    )


def test_what_is_no_key_is_refused(debian: Debian, repository: Repository, tmp_path: Path) -> None:
    (tmp_path / "page").write_text("<html>404</html>")
    log = nothing_changed(debian, replace(repository, key=f"file://{tmp_path}/page"))
    assert "(it holds no key)" in log[-1]


def test_a_key_that_cannot_be_fetched_is_named(debian: Debian, repository: Repository, tmp_path: Path) -> None:
    log = nothing_changed(debian, replace(repository, key=f"file://{tmp_path}/none"))
    assert log[-1].startswith(f"w1: the signing key could not be fetched from file://{tmp_path}/none ((37) ")


def test_a_repository_that_is_not_there_is_named(debian: Debian, repository: Repository, tmp_path: Path) -> None:
    log = nothing_changed(debian, replace(repository, uri=f"file:{tmp_path}/nowhere"))
    assert log[-1].startswith("w1: the repository gpuquilt-docker.sources cannot be used (")
    assert log[-1].endswith("see to it, then run again; nothing was changed.")


def test_one_that_another_key_has_signed_is_refused(debian: Debian, repository: Repository, tmp_path: Path) -> None:
    other = make_key(tmp_path / "other")
    log = nothing_changed(debian, replace(repository, key=f"file://{other.file}", fingerprint=other.fingerprint))
    assert "cannot be used" in log[-1]


def test_a_key_that_has_expired_is_none(debian: Debian, repository: Repository, key: Key, tmp_path: Path) -> None:
    debian.add(repository)
    assert debian.look().keys[repository.key_file] == {key.fingerprint}
    old = make_key(tmp_path / "old", lasts="seconds=1")
    # Two ticks of a clock that counts whole seconds.
    time.sleep(2.1)
    (debian.etc / "keyrings/gpuquilt-docker.asc").write_bytes(old.file.read_bytes())
    assert debian.look().keys[repository.key_file] == frozenset()


@pytest.mark.parametrize(
    ("uri", "suite"),
    [
        ("https://download.docker.com/linux/debian", "bookworm"),
        ("https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64", "/"),
        ("https://nvidia.github.io/libnvidia-container/stable/deb/$(ARCH)", "/"),
        ("http://user:word@mirror.example:8080/a~b+c", "stable"),
        ("http://mirror.example/flat", "sub/folder/"),
        ("file:///srv/local", "x_y"),
    ],
)
def test_lists_are_called_as_apt_calls_them(debian: Debian, uri: str, suite: str) -> None:
    components = "" if suite.endswith("/") else " main"
    (debian.etc / "sources.list").write_text(f"deb [arch=amd64] {uri} {suite}{components}\n")
    printed = debian.run("apt-get", "update", "--print-uris").stdout.splitlines()
    (name,) = (line.split()[1] for line in printed if "InRelease" in line)
    assert name == release_files(uri, suite)[0]
