"""The download itself, with a real curl and a real server, on this computer; and what is said of what was found."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roles.base import download
from roles.base.download import MEBIBYTE, RESERVE, Download, Found
from tests.unit.model.file_server import FileServer, serve

OLD = b"old" * 1000
NEW = os.urandom(3 * MEBIBYTE)
NOBODY = "no-such-user"
"""Whether another user may read the files is not asked, but where that is tested."""


def digest(content: bytes) -> str:
    return sha256(content).hexdigest()


@pytest.fixture
def server() -> Iterator[FileServer]:
    with serve() as found:
        found.files["/m.gguf"] = NEW
        yield found


@pytest.fixture
def wish(server: FileServer, tmp_path: Path) -> Download:
    """The file that is wanted; its folder is not there yet."""
    folder = tmp_path / "models"
    return Download(f"{server.url}/m.gguf", digest(NEW), f"{folder}/m.gguf", f"{tmp_path}/stamps/m.gguf.stamp", "model_")


def fetch(*wishes: Download, reader: str = NOBODY, reserve: int = 0) -> tuple[int, str]:
    """Exit status and last line of the script; it waits less than it would on a host."""
    text = download.script("gq-head", wishes, reader).replace(f"reserve={RESERVE}", f"reserve={reserve}")
    text = text.replace("sleep 1\n", "sleep 0.05\n").replace("sleep 3;", "sleep 0.05;")
    ended = subprocess.run(["sh", "-c", text], capture_output=True, text=True, timeout=60)
    assert ended.stderr == ""
    return ended.returncode, ended.stdout.splitlines()[-1] if ended.stdout else ""


def look(*wishes: Download, reader: str = NOBODY) -> list[Found]:
    ended = subprocess.run(["sh", "-c", download.look(wishes, reader)], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")
    return download.parse(ended.stdout.splitlines(), len(wishes))


def remains(wish: Download) -> list[str]:
    return sorted(path.name for path in Path(wish.folder).iterdir())


def put(path: str, content: bytes) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_bytes(content)


def test_a_download(server: FileServer, wish: Download) -> None:
    (found,) = look(wish)
    assert (found.state, found.http, found.size, found.partial) == ("absent", 200, len(NEW), 0)
    assert found.free is not None
    assert download.problems([wish], [found]) == []
    assert fetch(wish)[0] == 0
    assert Path(wish.path).read_bytes() == NEW
    assert Path(wish.path).stat().st_mode & 0o777 == 0o644
    assert remains(wish) == ["m.gguf"]
    assert look(wish)[0].state == "verified"


def test_what_is_verified_is_neither_asked_for_nor_read_again(server: FileServer, wish: Download) -> None:
    fetch(wish)
    server.requests.clear()
    assert look(wish)[0].state == "verified"
    assert fetch(wish) == (0, "")
    assert server.requests == []


def test_a_broken_connection_goes_on_where_it_broke(server: FileServer, wish: Download) -> None:
    server.breaks = [MEBIBYTE]
    assert fetch(wish)[0] == 0
    assert Path(wish.path).read_bytes() == NEW
    assert [(request.range, request.sent) for request in server.gets] == [
        (None, MEBIBYTE),
        (f"bytes={MEBIBYTE}-", len(NEW) - MEBIBYTE),
    ]


def test_a_later_run_goes_on_where_the_one_before_gave_up(server: FileServer, wish: Download) -> None:
    server.breaks = [MEBIBYTE, 0, 0, 0]
    status, sentence = fetch(wish)
    assert status == 3
    assert sentence.startswith(f"gq-head: {wish.source} could not be downloaded (curl: (")
    assert look(wish)[0].partial == MEBIBYTE
    server.requests.clear()
    assert fetch(wish)[0] == 0
    assert [(request.range, request.sent) for request in server.gets] == [(f"bytes={MEBIBYTE}-", len(NEW) - MEBIBYTE)]


def test_a_server_that_knows_no_ranges_sends_it_all_again(server: FileServer, wish: Download) -> None:
    server.ranges = False
    server.breaks = [MEBIBYTE]
    assert fetch(wish)[0] == 0
    assert Path(wish.path).read_bytes() == NEW


def test_a_server_that_does_not_like_head(server: FileServer, wish: Download) -> None:
    server.head_status = 403
    (found,) = look(wish)
    assert (found.http, found.size) == (403, None)
    assert download.problems([wish], [found]) == []
    assert fetch(wish)[0] == 0


def test_a_complete_partial_file_of_a_server_that_does_not_like_head(server: FileServer, wish: Download) -> None:
    server.head_status = 403
    put(f"{wish.path}.partial", NEW)
    put(f"{wish.stamp}.partial", f"{wish.sha256}\n".encode())
    assert fetch(wish)[0] == 0
    assert Path(wish.path).read_bytes() == NEW


def test_a_redirection_to_a_server_that_does_not_say_how_long_the_file_is(server: FileServer, wish: Download) -> None:
    server.redirects["/latest"] = "/m[1].gguf"
    server.files["/m[1].gguf"] = NEW
    server.lengths = False
    for source in ("/latest", "/m[1].gguf"):
        redirected = replace(wish, source=server.url + source, path=f"{wish.path}{source[1]}", stamp=f"{wish.stamp}{source[1]}")
        (found,) = look(redirected)
        assert (found.http, found.size, found.error) == (200, None, "")
        assert fetch(redirected)[0] == 0


def test_a_partial_file_of_another_wish_is_no_beginning(server: FileServer, wish: Download) -> None:
    put(f"{wish.path}.partial", OLD)
    put(f"{wish.stamp}.partial", f"{digest(OLD)}\n".encode())
    assert look(wish)[0].partial == 0
    assert fetch(wish)[0] == 0
    assert [request.range for request in server.gets] == [None]


def test_a_wrong_hash_leaves_the_old_file(server: FileServer, wish: Download) -> None:
    put(wish.path, OLD)
    wrong = replace(wish, sha256="0" * 64)
    status, sentence = fetch(wrong)
    assert status == 3
    assert sentence == (
        f"gq-head: model_source = {wish.source} has the SHA-256 {wish.sha256}, and model_sha256 is {'0' * 64}:"
        " correct the one or the other; nothing was replaced."
    )
    assert Path(wish.path).read_bytes() == OLD
    assert remains(wish) == ["m.gguf"]
    assert fetch(wish)[0] == 0
    assert Path(wish.path).read_bytes() == NEW


def test_a_file_that_was_put_there_by_hand_is_only_verified(server: FileServer, wish: Download) -> None:
    put(wish.path, NEW)
    assert look(wish)[0].state == "unknown"
    assert fetch(wish)[0] == 0
    assert look(wish)[0].state == "verified"
    assert server.requests == []


def test_a_verified_file_that_changed_is_fetched_again(server: FileServer, wish: Download) -> None:
    fetch(wish)
    with Path(wish.path).open("r+b") as file:
        file.write(b"X")
    assert look(wish)[0].state == "unknown"
    assert fetch(wish)[0] == 0
    assert Path(wish.path).read_bytes() == NEW


def test_a_verified_file_that_was_only_touched_is_only_verified(server: FileServer, wish: Download) -> None:
    fetch(wish)
    server.requests.clear()
    os.utime(wish.path)
    assert fetch(wish)[0] == 0
    assert server.requests == []
    assert look(wish)[0].state == "verified"


def test_another_hash_for_a_verified_file_needs_no_reading(server: FileServer, wish: Download) -> None:
    fetch(wish)
    server.files["/m.gguf"] = OLD
    other = replace(wish, sha256=digest(OLD))
    (found,) = look(other)
    assert (found.state, found.sha256, found.size) == ("wrong", wish.sha256, len(OLD))
    assert fetch(other)[0] == 0
    assert Path(wish.path).read_bytes() == OLD


def test_a_file_url(wish: Download, tmp_path: Path) -> None:
    put(f"{tmp_path}/a b/m.gguf", NEW)
    local = replace(wish, source=f"file://{tmp_path}/a%20b/m.gguf")
    (found,) = look(local)
    assert (found.http, found.size) == (0, len(NEW))
    assert fetch(local)[0] == 0
    assert Path(wish.path).read_bytes() == NEW
    missing = replace(wish, source=f"file://{tmp_path}/none.gguf", path=f"{wish.path}2")
    (sentence,) = download.problems([missing], look(missing))
    assert sentence.startswith(f"model_source = file://{tmp_path}/none.gguf cannot be reached from there (curl: (37) ")


def test_a_file_in_place(wish: Download, tmp_path: Path) -> None:
    path = f"{tmp_path}/mine/it's.gguf"
    mine = replace(wish, source=path, path=path)
    (sentence,) = download.problems([mine], look(mine))
    assert sentence == f"model_source = {path} is no file there: correct the path, or put the file there."
    put(path, OLD)
    assert download.problems([mine], look(mine)) == []
    status, sentence = fetch(mine)
    assert status == 3
    assert f"model_source = {path} has the SHA-256 {digest(OLD)}, and model_sha256 is {digest(NEW)}" in sentence
    assert Path(path).read_bytes() == OLD
    (sentence,) = download.problems([mine], look(mine))
    assert f"has the SHA-256 {digest(OLD)}, and model_sha256 is {digest(NEW)}" in sentence
    put(path, NEW)
    assert fetch(mine)[0] == 0
    assert look(mine)[0].state == "verified"
    assert remains(mine) == ["it's.gguf"]


def test_several_files(server: FileServer, wish: Download) -> None:
    server.files |= {"/a": OLD, "/b": NEW}
    wishes = [
        replace(
            wish,
            source=f"{server.url}/{name}",
            sha256=digest(server.files[f"/{name}"]),
            path=f"{wish.path}.{name}",
            stamp=f"{wish.stamp}.{name}",
        )
        for name in ("a", "b")
    ]
    assert [found.size for found in look(*wishes)] == [len(OLD), len(NEW)]
    assert fetch(*wishes)[0] == 0
    assert [found.state for found in look(*wishes)] == ["verified", "verified"]


def test_the_script_does_not_depend_on_how_far_the_host_is(server: FileServer, wish: Download) -> None:
    """A later run follows the unit that is at work only if it would start the same script."""
    before = download.script("gq-head", [wish], NOBODY)
    server.breaks = [MEBIBYTE, 0, 0, 0]
    fetch(wish)
    assert download.script("gq-head", [wish], NOBODY) == before


def test_the_disk_is_too_small(server: FileServer, wish: Download) -> None:
    free = shutil.disk_usage(Path(wish.folder).parent).free
    status, sentence = fetch(wish, reserve=2 * free)
    assert status == 3
    assert f"gq-head: {wish.folder} has " in sentence
    assert "and the download needs 3 MiB and leaves " in sentence
    assert server.gets == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can tell what another user may read")
def test_a_file_that_the_service_cannot_read(wish: Download) -> None:
    Path(wish.folder).mkdir(mode=0o700)
    status, sentence = fetch(wish, reader="nobody")
    assert status == 3
    assert sentence.startswith(f"gq-head: the user of the service cannot read {wish.path}: allow it (chmod)")
    (sentence,) = download.problems([wish], look(wish, reader="nobody"))
    assert sentence.startswith(f"the user of the service cannot read {wish.path}: allow it (chmod)")


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (Found("absent", http=404), "model_source = https://x/m cannot be had (HTTP status 404): "),
        (Found("absent", http=401), "model_source = https://x/m cannot be had (HTTP status 401): "),
        (Found("absent", error="curl: (6) no such host"), "cannot be reached from there (curl: (6) no such host): "),
        (
            Found("absent", size=100 * MEBIBYTE, free=100 * MEBIBYTE),
            "/srv has 100 MiB free, and the download needs 100 MiB and leaves 64 MiB free: free some space there,",
        ),
        (Found("wrong", size=100 * MEBIBYTE, free=100 * MEBIBYTE), "/srv has 100 MiB free"),
    ],
)
def test_what_is_refused(found: Found, sentence: str) -> None:
    (said,) = download.problems([Download("https://x/m", "0" * 64, "/srv/m", "/s", "model_")], [found])
    assert sentence in said


@pytest.mark.parametrize(
    "found",
    [
        Found(),
        Found("verified", http=404, size=100 * MEBIBYTE, free=0),
        Found("unknown", size=100 * MEBIBYTE, free=0),
        Found("absent", http=403),
        Found("absent", error="curl: (52) Empty reply from server"),
        Found("absent", size=100 * MEBIBYTE, partial=60 * MEBIBYTE, free=40 * MEBIBYTE + RESERVE),
        Found("absent", size=100 * MEBIBYTE, partial=100 * MEBIBYTE, free=0),
        Found("wrong", readable=False),
    ],
)
def test_what_is_not_refused(found: Found) -> None:
    assert download.problems([Download("https://x/m", "0" * 64, "/srv/m", "/s", "model_")], [found]) == []


def test_the_space_of_all_parts_counts() -> None:
    parts = [Download("https://x/m", "0" * 64, f"/srv/{part}", "/s", "model_") for part in "ab"]
    found = Found("absent", size=60 * MEBIBYTE, free=100 * MEBIBYTE + RESERVE)
    assert download.problems(parts[:1], [found]) == []
    (sentence,) = download.problems(parts, [found, found])
    assert "the download needs 120 MiB" in sentence


@given(st.lists(st.text()), st.integers(0, 3))
def test_whatever_a_host_says_can_be_read(lines: list[str], count: int) -> None:
    keys = ("state", "sha256", "partial", "free", "http", "size", "error", "unreadable")
    lines += [f"0 {key} {line}" for key in keys for line in lines]
    assert len(download.parse(lines, count)) == count
