"""What is refused, what is installed, what is written, and when the daemon is restarted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from roles.base.apt import Change
from roles.docker import decisions
from roles.docker.daemon import read
from roles.docker.decisions import (
    against,
    against_toolkit,
    decided,
    needs_repository,
    owed,
    packages,
    problems,
    repository,
    texts,
    texts_without_us,
    version,
)
from roles.docker.seen import DOCKER, parse
from tests.unit.docker.examples import INFO, TRIXIE, bare, settings, shown, with_text

BOOKWORM = ("system debian bookworm", "package docker.io 20.10.24+dfsg1-1+deb12u1+b6 installed")


def only(seen: Any, nvidia: bool = False, **values: Any) -> str:
    """The one sentence against it."""
    (sentence,) = problems(seen, settings(**values), nvidia)
    return sentence


def test_what_is_there_and_good_enough_stays_whichever_it_is() -> None:
    for engine in ("distribution", "docker"):
        assert problems(shown(), settings(engine=engine), nvidia=True) == []
        assert packages(shown(), settings(engine=engine)) == ["docker.io", "docker-cli", "docker-buildx", "iptables"]
    theirs = shown("package docker-ce 5:29.1.3-1~debian.13~trixie installed")
    assert problems(theirs, settings(), nvidia=True) == []
    assert packages(theirs, settings()) == list(DOCKER)


@pytest.mark.parametrize("name", ["docker-engine", "lxc-docker", "podman-docker"])
def test_what_cannot_be_beside_it_is_named(name: str) -> None:
    assert only(bare(f"package {name} 1.0 installed")) == (
        f"Docker cannot be installed beside {name}: take it out (apt-get remove {name}), and run again."
    )


def test_a_daemon_that_reads_another_file_is_named() -> None:
    assert only(shown("flag --config-file")) == (
        "its dockerd is started with --config-file, so that it does not read /etc/docker/daemon.json: take that out of its unit"
        " or of /etc/default/docker, and run again."
    )


def test_a_file_that_docker_could_not_read_either_is_named() -> None:
    assert only(shown('file {"debug": true,}')) == (
        "its /etc/docker/daemon.json cannot be read (line 1: Expecting property name enclosed in double quotes), and neither"
        " could Docker: correct it, and run again."
    )


def test_two_wishes_that_contradict_each_other_are_named() -> None:
    assert only(shown('file {"data-root": "/a"}'), options={"data-root": "/b"}) == (
        "its /etc/docker/daemon.json and docker_options want different things of data-root: take it out of one of them, and run"
        " again."
    )
    # What we put there ourselves may change.
    ours = shown('file {"data-root": "/a"}', 'record {"data-root": "/a"}')
    assert problems(ours, settings(options={"data-root": "/b"}), nvidia=False) == []


def test_what_dockerd_is_started_with_is_not_said_in_its_file_as_well() -> None:
    wanted = {
        "hosts": ["tcp://127.0.0.1:2375"],
        "log-driver": "local",
        "labels": ["a=b"],
        "features": {"cdi": True},
        "debug": True,
    }
    there = shown("flag --containerd", "flag -H", "flag --log-driver", "flag --label", "flag --feature")
    assert only(there, options=wanted) == (
        "its dockerd is started with --label and --log-driver and -H, which docker_options says as well, and so would not start"
        " any more: take it out of one of them, and run again."
    )
    assert problems(there, settings(), nvidia=False) == []


def test_containers_that_run_are_not_left_behind() -> None:
    wanted = {"data-root": "/srv/docker", "storage-driver": "overlay2"}
    runs = "container c0ffee /worker runc null"
    assert only(shown(runs), options=wanted) == (
        "docker_options want data-root /srv/docker in place of /var/lib/docker, where Docker would not find the containers that"
        " run (worker), which would go on unseen: stop them (docker stop), and run again."
    )
    assert problems(shown(), settings(options=wanted), nvidia=False) == [], "nothing runs"
    # It is there already, whatever Docker calls it: with userns-remap it adds something.
    info = {**INFO, "DockerRootDir": "/srv/docker/100000.100000"}
    there = shown(runs, 'file {"data-root": "/srv/docker"}', 'record {"data-root": "/srv/docker"}', info=info)
    assert problems(there, settings(options=wanted), nvidia=False) == []
    # Back to where it was.
    assert "data-root /var/lib/docker in place of /srv/docker" in only(there)


def test_a_docker_too_old_for_cdi_is_refused_where_nvidia_computes() -> None:
    assert problems(shown(*BOOKWORM), settings(), nvidia=False) == []
    assert only(shown(*BOOKWORM), nvidia=True) == (
        "its Docker (20.10.24+dfsg1-1+deb12u1+b6, the distribution's) is too old to give containers GPUs of NVIDIA by CDI, which"
        " takes 25 or newer: take it out when its containers can be stopped (apt-get remove docker.io; images and containers stay"
        ' in /var/lib/docker), set docker_engine = "docker", and run again.'
    )
    old = shown("package docker-ce 5:24.0.9-1~debian.12~bookworm installed")
    assert "upgrade it (apt-get update; apt-get install docker-ce docker-ce-cli containerd.io)" in only(old, nvidia=True)


def test_so_is_one_that_would_come() -> None:
    coming = bare("candidate docker.io 20.10.24+dfsg1-1+deb12u1+b6")
    sentence = (
        "the distribution's Docker (20.10.24+dfsg1-1+deb12u1+b6) is too old to give containers GPUs of NVIDIA by CDI, which takes"
        ' 25 or newer: set docker_engine = "docker".'
    )
    assert only(coming, nvidia=True) == sentence
    assert problems(coming, settings(engine="docker"), nvidia=True) == []
    assert problems(coming, settings(), nvidia=False) == []
    change = Change("install", "docker.io", "20.10.24+dfsg1-1+deb12u1+b6")
    assert against([change], nvidia=True) == [sentence]
    assert against([change], nvidia=False) == []
    assert against([replace(change, version="26.1.5+dfsg1-9")], nvidia=True) == []


def engine(seen: Any, nvidia: bool = False) -> str:
    """What `auto` comes to."""
    return decided(seen, settings(engine="auto"), nvidia).engine


def test_auto_takes_what_is_there_or_else_what_can_do_it() -> None:
    theirs = shown("package docker-ce 5:29.1.3-1~debian.13~trixie installed")
    assert engine(shown(), nvidia=True) == engine(shown(*BOOKWORM), nvidia=True) == "distribution"
    assert engine(theirs, nvidia=True) == "docker"
    fresh, old = bare("candidate docker.io 26.1.5+dfsg1-9"), bare("candidate docker.io 20.10.24+dfsg1-1")
    assert [engine(seen, nvidia=True) for seen in (fresh, old)] == ["distribution", "docker"]
    assert [engine(seen) for seen in (fresh, old)] == ["distribution", "distribution"]
    # Where apt has no lists yet.
    assert engine(parse(["system debian trixie"]), nvidia=True) == "distribution"
    assert engine(parse(["system debian bookworm"]), nvidia=True) == "docker"
    assert decided(theirs, settings(engine="distribution"), nvidia=True).engine == "distribution"


def test_a_repository_that_docker_came_from_is_left_alone_unless_ours_is_asked_for() -> None:
    theirs = shown("package docker-ce 5:29.1.3-1~debian.13~trixie installed")
    old = bare("candidate docker.io 20.10.24+dfsg1-1")
    assert not needs_repository(theirs, settings(engine="auto"), nvidia=True)
    assert needs_repository(theirs, settings(engine="docker"), nvidia=True)
    assert needs_repository(old, settings(engine="auto"), nvidia=True)
    assert not needs_repository(old, settings(engine="auto"), nvidia=False)
    assert not needs_repository(shown(), settings(engine="docker"), nvidia=True)


@pytest.mark.parametrize("engine", ["auto", "none"])
def test_what_is_too_old_is_refused_whoever_sees_to_it(engine: str) -> None:
    there = shown(*BOOKWORM)
    found = decided(there, settings(engine=engine), nvidia=True)
    (sentence,) = problems(there, found, nvidia=True, runs=True)
    assert sentence.startswith("its Docker (20.10.24+dfsg1-1+deb12u1+b6, the distribution's) is too old to give containers GPUs")
    assert problems(there, found, nvidia=False, runs=True) == []
    older = shown("package docker-ce 5:19.03.15~3-0~debian-buster installed")
    (sentence,) = problems(older, found, nvidia=False, runs=True)
    assert "(5:19.03.15~3-0~debian-buster) is too old to build images of llama.cpp, which takes 20.10 or newer" in sentence
    assert problems(older, found, nvidia=False) == [], "no container of ours"


def test_the_distributions_packages_are_those_that_it_has() -> None:
    assert packages(bare("candidate docker.io 20.10.24", "candidate docker-compose 1"), settings()) == ["docker.io", "iptables"]
    noble = bare("candidate docker.io 28.2.2-0ubuntu1~24.04.1", "candidate docker-buildx 0.21.3")
    assert packages(noble, settings()) == ["docker.io", "docker-buildx", "iptables"]
    assert packages(bare(), settings(engine="docker")) == list(DOCKER)


@pytest.mark.parametrize(
    ("words", "numbers"),
    [
        ("5:29.1.3-1~debian.13~trixie", (29, 1, 3)),
        ("26.1.5+dfsg1-9+deb13u1+b1", (26, 1, 5)),
        ("28.2.2-0ubuntu1", (28, 2, 2)),
        ("", ()),
    ],
)
def test_a_version_is_dockers_own(words: str, numbers: tuple[int, ...]) -> None:
    assert version(words) == numbers


def test_a_toolkit_of_another_version_is_refused() -> None:
    change = Change("install", "nvidia-container-toolkit-base", "1.20.0-1")
    assert against_toolkit([change], settings(toolkit_version="1.19.0")) == [
        "apt would install nvidia-container-toolkit-base 1.20.0-1 in place of 1.19.0-1, which docker_toolkit_version wants: see"
        " which are to be had (apt-cache policy), and set it to one of them."
    ]
    assert against_toolkit([change], settings(toolkit_version="1.20.0")) == []


def test_the_repository_is_the_distributions() -> None:
    ubuntu = parse(["system ubuntu noble"])
    found = repository(ubuntu, settings())
    assert (found.uri, found.suites) == ("https://download.docker.com/linux/ubuntu", ("noble",))
    assert found.key == "https://download.docker.com/linux/ubuntu/gpg"
    mirror = repository(ubuntu, settings(repository="https://mirror.example/docker"))
    assert (mirror.uri, mirror.key) == ("https://mirror.example/docker", "https://mirror.example/docker/gpg")


@pytest.mark.parametrize(
    "values", [{"toolkit_version": "1.17.8"}, {"toolkit_version": "1.19"}, {"repository": "https://a.example/"}]
)
def test_settings_that_cannot_be(values: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        settings(**values)


def test_a_file_that_says_it_all_stays_to_the_character() -> None:
    text = '{ "live-restore":true,\n\n "log-opts": {"max-size": "1g"}}'
    seen = shown(*(f"file {line}" for line in text.splitlines()))
    assert texts(seen, settings(), nvidia=False).options == text
    assert texts(seen, settings(), nvidia=False).record is None


def test_cdi_is_asked_for_from_25_to_28_1() -> None:
    for words, asked in (("24.0.9-1", False), ("25.0.0-1", True), ("28.1.1-1", True), ("28.2.0-1", False), ("29.7.2-1", False)):
        seen = shown(f"package docker-ce 5:{words} installed", "file {}")
        assert ("features" in read(texts(seen, settings(), nvidia=True).options or "")) is asked, words
        assert "features" not in read(texts(seen, settings(), nvidia=False).options or "")


def test_a_run_for_the_processors_alone_leaves_cdi_where_we_put_it() -> None:
    before = shown("package docker-ce 5:26.1.5-1 installed", "file {}")
    with_gpus = with_text(before, texts(before, settings(), nvidia=True))
    assert "features" in read(with_gpus.text or "")
    assert texts(with_gpus, settings(), nvidia=False).options == with_gpus.text
    # Where Docker does so unasked, nobody has to say it.
    newer = replace(with_gpus, packages={"docker-ce": "5:29.1.3-1"})
    assert "features" not in read(texts(newer, settings(), nvidia=False).options or "")


def test_what_we_put_there_is_taken_back_and_nothing_else() -> None:
    before = shown('file {"debug": true}')
    after = with_text(before, texts(before, settings(options={"data-root": "/srv"}), nvidia=True))
    assert texts(after, settings(options={"data-root": "/srv"}), nvidia=True).options == after.text
    taken = texts_without_us(after)
    assert read(taken.options or "") == {"debug": True}
    assert taken.record is None
    # A file of ours alone goes as a whole, and one that we never touched stays as it is.
    alone = replace(before, text=None)
    assert texts_without_us(with_text(alone, texts(alone, settings(), nvidia=False))).options is None
    assert texts_without_us(before).options == before.text


def test_a_daemon_that_runs_with_its_files_is_left_alone() -> None:
    assert owed(shown()) == []
    assert owed(shown("changed 0", "file {}")) == []


@pytest.mark.parametrize(
    ("lines", "info", "reason"),
    [
        (["state inactive"], {}, "docker.service is inactive"),
        (["state failed"], {}, "docker.service is failed"),
        (["changed 1796097071.830000000"], None, "/etc/docker/daemon.json is newer than the daemon that runs"),
        (
            [],
            {**INFO, "LiveRestoreEnabled": False},
            "it does not keep containers running while it restarts (live-restore), though /etc/docker/daemon.json says so",
        ),
        (['file {"features": {"cdi": true}}'], None, "it does not use CDI, though /etc/docker/daemon.json says so"),
    ],
)
def test_a_daemon_that_does_not_is_restarted(lines: list[str], info: dict[str, Any] | None, reason: str) -> None:
    assert owed(shown(*lines, info=info)) == [reason]


def test_a_node_of_a_swarm_is_known() -> None:
    assert not shown().swarm
    assert shown(info={**INFO, "Swarm": {"LocalNodeState": "active"}}).swarm
    stopped = shown("state inactive", "swarm", "file {}", info={})
    assert stopped.swarm
    for seen in (stopped, shown("file {}", info={**INFO, "Swarm": {"LocalNodeState": "active"}})):
        assert "live-restore" not in read(texts(seen, settings(), nvidia=False).options or "")


def test_a_package_that_was_removed_is_none() -> None:
    assert parse([line.replace(" installed", " config-files") for line in TRIXIE]).source == "none"


def test_a_client_without_its_daemon_says_nothing() -> None:
    assert shown(info={"ServerErrors": ["Cannot connect to the Docker daemon"], "ClientInfo": {}}).info == {}
    assert parse(["info {", "started x"]).info == {}
    assert parse([]) == decisions.Seen()
