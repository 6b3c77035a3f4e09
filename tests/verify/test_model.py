"""The model that the head serves is the one that was asked for, byte for byte."""

from __future__ import annotations

import shlex
from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

from roles.model.settings import Settings
from tests.verify import reading
from tests.verify.cluster import Service


def test_model_has_the_hash(head: Service) -> None:
    wanted = _wanted(head)
    found = reading.digests(head.subject.ask(f"sha256sum {shlex.join(wanted)} || true"))
    wrong = [path for path, sha256 in wanted.items() if found.get(path) != sha256]
    assert not wrong, (
        f"{head.subject}: {', '.join(wrong)} is missing or has not the hash in model_sha256;"
        " move it away and run deploys/cluster.py, which fetches it again."
    )


def test_head_serves_the_file_that_is_there(head: Service) -> None:
    """The hash above is that of a file; the process may still have one that was at the same path before."""
    wanted = _wanted(head)
    files = 'for file; do stat -Lc %Z "$file"; readlink -f "$file"; done'
    lines = head.subject.ask(f"set -e; set -- {shlex.join(wanted)}; {files}").splitlines()
    seen = head.running()
    stale = [path for changed, path in zip(lines[::2], lines[1::2], strict=True) if not seen.serves(path, int(changed))]
    assert not stale, (
        f"{head.subject}: {head.unit} serves what was in {', '.join(stale)} before: run `systemctl restart {head.unit}` there."
    )


def _wanted(head: Service) -> dict[str, str]:
    """The files of the model that the head was started with → the SHA-256 that each must have."""
    settings = head.subject.settings[Settings]
    served = PurePosixPath(head.running().option("-m", "--model") or "")
    assert served.name == _name(settings.source[0]), (
        f"{head.subject}: {head.unit} serves {served}, and model_source is {settings.source[0]}; run deploys/cluster.py."
    )
    return {str(served.with_name(_name(source))): sha256 for source, sha256 in zip(settings.source, settings.sha256, strict=True)}


def _name(source: str) -> str:
    """The name of the file, of a URL or of a path."""
    return PurePosixPath(unquote(urlsplit(source).path) if "://" in source else source).name
