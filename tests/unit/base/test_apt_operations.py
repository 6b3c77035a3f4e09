"""What the operations of apt do on a host, by what it shows."""

from __future__ import annotations

from typing import Any

from pyinfra.api import FunctionCommand
from pyinfra.context import ctx_host, ctx_state
from pyinfra_testing.util import FakeState, create_host  # type: ignore[import-untyped]

from roles.base.apt import COMPONENTS, Apt, Record, Repository
from roles.base.graphics import access, no_access, no_component
from roles.base.operations import components, no_repository, remove_packages, repository

DOCKER = Repository("docker", "https://vendor.example/debian", ("bookworm",), ("stable",), "https://vendor.example/key", "A" * 40)
LISTS = {"vendor.example_debian_dists_bookworm_InRelease": "Vendor"}
RIGHT = Apt({DOCKER.file: DOCKER.text}, "bookworm", "debian", {DOCKER.key_file: frozenset({"A" * 40})}, LISTS)
OTHER = {"/etc/apt/sources.list.d/docker.list": "deb http://vendor.example/debian bookworm stable\n"}
DEBIAN = {"/etc/apt/sources.list": "deb http://deb.example/debian bookworm main\n"}


def commands(operation: Any, fact: str, seen: Any, *arguments: Any, asked: str = "") -> list[Any]:
    """What an operation yields on a host that shows this."""
    state = FakeState()
    host = create_host(state, facts={fact: {asked: seen} if asked else seen})
    with ctx_state.use(state), ctx_host.use(host):
        return list(operation._inner(*arguments))


def apt(operation: Any, seen: Apt, *arguments: Any) -> list[Any]:
    return commands(operation, "facts.AptFact", seen, *arguments)


def script(yielded: list[Any]) -> str:
    """The one script of long work."""
    (command,) = yielded
    assert isinstance(command, FunctionCommand)
    return str(command.args[1])


def test_a_repository_that_is_right_is_left_alone() -> None:
    assert apt(repository, RIGHT, DOCKER) == []


def test_each_thing_that_is_not_right_is_mended() -> None:
    """Another file for it, its own file, its key, its lists."""
    for seen in (
        Apt({**RIGHT.files, **OTHER}, keys=RIGHT.keys, lists=LISTS),
        Apt({DOCKER.file: DOCKER.text.replace("stable", "test")}, keys=RIGHT.keys, lists=LISTS),
        Apt(RIGHT.files, keys={DOCKER.key_file: frozenset({"B" * 40})}, lists=LISTS),
        Apt(RIGHT.files, keys=RIGHT.keys),
    ):
        assert "\nadd_repository " in script(apt(repository, seen, DOCKER))


def test_a_key_that_is_right_is_not_fetched_again() -> None:
    assert f"\nadd_repository '' {'A' * 40} " in script(apt(repository, Apt(RIGHT.files, keys=RIGHT.keys), DOCKER))
    assert f"\nadd_repository {DOCKER.key} {'A' * 40} " in script(apt(repository, Apt(), DOCKER))


def test_source_and_key_are_taken_away() -> None:
    (command,) = apt(no_repository, RIGHT, "docker")
    assert str(command) == f"rm -f {DOCKER.file} {DOCKER.key_file}"
    assert apt(no_repository, Apt(OTHER), "docker") == []


def test_components_are_switched_on_once_and_off_again() -> None:
    (command,) = apt(components, Apt(DEBIAN, "bookworm", "debian"), ["contrib"])
    assert f"mv {COMPONENTS}.new {COMPONENTS}" in str(command)
    text = "Types: deb\nURIs: http://deb.example/debian\nSuites: bookworm\nComponents: contrib\n"
    there = Apt({**DEBIAN, COMPONENTS: text}, "bookworm", "debian")
    assert apt(components, there, ["contrib"]) == []
    (command,) = apt(components, there, [])
    assert str(command) == f"rm {COMPONENTS}"
    assert apt(components, Apt(DEBIAN, "bookworm", "debian"), []) == []


def test_components_are_switched_off_once_nobody_needs_them() -> None:
    def done(drivers: dict[str, str]) -> list[str]:
        state = FakeState()
        facts: dict[str, Any] = {"facts.AptFact": Apt({**DEBIAN, COMPONENTS: "x"})}
        facts["facts.RecordFact"] = {"record=nvidia": Record(bool(drivers), drivers)}
        host = create_host(state, facts=facts)
        with ctx_state.use(state), ctx_host.use(host):
            return list(map(str, no_component._inner()))

    assert done({}) == [f"rm {COMPONENTS}"]
    assert done({"nvidia-driver": "installed"}) == []


def test_what_came_by_us_is_purged_once() -> None:
    def purged(seen: Record) -> list[Any]:
        return commands(remove_packages, "facts.RecordFact", seen, "tools", asked="record=tools")

    (command,) = purged(Record(True, {"b": "installed", "a": "half-configured"}))
    assert command.args == ("tools", ["a", "b"], "true")
    assert len(purged(Record(True))) == 1
    assert purged(Record()) == []


def test_access_is_given_once_and_taken_once() -> None:
    def done(operation: Any, groups: set[str]) -> list[str]:
        return [str(command) for command in commands(operation, "graphics.GroupsFact", frozenset(groups))]

    assert done(access, {"video"}) == ["groupadd --force --system render", "usermod --append --groups render llama"]
    assert done(access, {"video", "render"}) == []
    assert done(no_access, {"video"}) == ["gpasswd --delete llama video"]
    assert done(no_access, set()) == []
