"""A pinned checkout, with real git repositories: the command that fetches, and the fact that tells whether it must."""

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from roles.base.facts import CheckoutFact
from roles.base.operations import _fetch_and_exchange

PLAIN = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}


def shell(command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["sh", "-c", command], env=os.environ | PLAIN | environment, capture_output=True, text=True)


@dataclass(frozen=True)
class Place:
    """A repository with two commits, and a folder for the checkout."""

    repository: Path
    older: str
    newer: str
    folder: Path

    def check_out(self, commit: str, repository: Path | None = None, environment: Mapping[str, str] = {}) -> str:
        """What git has against it, empty when it worked."""
        ended = shell(_fetch_and_exchange(f"file://{repository or self.repository}", commit, str(self.folder)), **environment)
        return "" if ended.returncode == 0 else ended.stderr

    @property
    def seen(self) -> str:
        """What the fact tells."""
        fact = CheckoutFact()
        output = shell(fact.command(folder=str(self.folder))).stdout.splitlines()
        return fact.process(output) if output else fact.default()

    @property
    def content(self) -> str:
        return (self.folder / "file").read_text()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    repository = tmp_path / "upstream"
    git = f"git -C {repository} -c user.name=a -c user.email=a@example.org"
    shell(f"git init -q {repository}")
    commits = []
    for text in ("older", "newer", "newest"):
        ended = shell(f"echo {text} >{repository}/file && {git} add file && {git} commit -qm {text} && {git} rev-parse HEAD")
        commits.append(ended.stdout.strip())
    return Place(repository, commits[0], commits[1], tmp_path / "cache" / "source")


def test_from_nothing_forward_and_back(place: Place) -> None:
    assert place.seen == ""
    for commit, content in ((place.older, "older\n"), (place.newer, "newer\n"), (place.older, "older\n")):
        assert place.check_out(commit) == ""
        assert (place.seen, place.content) == (commit, content)


def test_only_one_commit_is_fetched(place: Place) -> None:
    place.check_out(place.newer)
    assert shell(f"git -C {place.folder} rev-list --count HEAD").stdout.strip() == "1"


def test_an_unknown_commit_leaves_the_old_checkout(place: Place) -> None:
    place.check_out(place.older)
    assert "not our ref" in place.check_out("0" * 40)
    assert (place.seen, place.content) == (place.older, "older\n")


def test_a_repository_that_is_not_there(place: Place) -> None:
    assert "fatal:" in place.check_out(place.older, repository=Path("/no/such/repository"))


def test_a_changed_file_is_no_checkout(place: Place) -> None:
    place.check_out(place.older)
    (place.folder / "file").write_text("mine")
    assert place.seen == ""
    place.check_out(place.older)
    assert (place.seen, place.content) == (place.older, "older\n")


@pytest.mark.parametrize(
    "damage",
    [
        "rm -r {folder}/.git/objects",
        "rm {folder}/.git/HEAD",
        "touch {folder}/.git/index.lock && rm {folder}/file",
        "rm -r {folder} && mkdir -p {folder}.new/.git && touch {folder}.new/left",
        "rm -r {folder} && touch {folder}",
    ],
)
def test_what_a_killed_run_left_is_exchanged(place: Place, damage: str) -> None:
    place.check_out(place.older)
    assert shell(damage.format(folder=place.folder)).returncode == 0
    assert place.seen == ""
    assert place.check_out(place.older) == ""
    assert (place.seen, place.content) == (place.older, "older\n")


def test_another_repository_with_the_same_commit(place: Place, tmp_path: Path) -> None:
    place.check_out(place.older)
    mirror = tmp_path / "mirror.git"
    shell(f"git clone -q --bare {place.repository} {mirror}")
    assert place.check_out(place.newer, repository=mirror) == ""
    assert place.seen == place.newer


def test_a_server_that_hands_out_branches_only(place: Place) -> None:
    old_protocol = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "protocol.version", "GIT_CONFIG_VALUE_0": "0"}
    assert place.check_out(place.older, environment=old_protocol) == ""
    assert place.seen == place.older
    assert "unknown commit" in place.check_out("0" * 40, environment=old_protocol)


def test_a_tag_is_not_taken_for_a_commit(place: Place) -> None:
    git = f"git -C {place.repository} -c user.name=a -c user.email=a@example.org"
    tag = shell(f"{git} tag -a -m x v1 && git -C {place.repository} rev-parse v1").stdout.strip()
    assert "unknown commit" in place.check_out(tag)
