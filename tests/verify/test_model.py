"""The model that the head serves is the one that was asked for, byte for byte."""

from __future__ import annotations

import shlex
from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

from roles.model.settings import Settings
from tests.verify import reading
from tests.verify.cluster import Service


def test_model_has_the_hash(head: Service) -> None:
    settings = head.subject.settings[Settings]
    served = PurePosixPath(head.running().option("-m", "--model") or "")
    assert served.name == _name(settings.source[0]), (
        f"{head.subject}: {head.unit} serves {served}, and model_source is {settings.source[0]}; run deploys/cluster.py."
    )
    wanted = {
        str(served.with_name(_name(source))): sha256 for source, sha256 in zip(settings.source, settings.sha256, strict=True)
    }
    found = reading.digests(head.subject.ask(f"sha256sum {shlex.join(wanted)} || true"))
    wrong = [path for path, sha256 in wanted.items() if found.get(path) != sha256]
    assert not wrong, (
        f"{head.subject}: {', '.join(wrong)} is missing or has not the hash in model_sha256;"
        " move it away and run deploys/cluster.py, which fetches it again."
    )


def _name(source: str) -> str:
    """The name of the file, of a URL or of a path."""
    return PurePosixPath(unquote(urlsplit(source).path) if "://" in source else source).name
