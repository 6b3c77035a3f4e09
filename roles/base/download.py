"""A file that is fetched on the host itself and trusted only once its SHA-256 is the one that is wanted. Pure.

A stamp beside our other notes holds hash, size and modification time of the file as it was hashed last, so that
a large file is not read again in every run, and a file that changed is noticed.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal, get_args

from roles.base.templates import TEMPLATES

State = Literal["verified", "wrong", "unknown", "absent"]
STATES: tuple[State, ...] = get_args(State)
"""What stands at the final path: what is wanted, something else, something not hashed yet, or nothing."""

SCRIPTS = TEMPLATES / "download"

MEBIBYTE = 1024 * 1024
RESERVE = 64 * MEBIBYTE
"""Bytes that a download leaves free: a full file system stops more than the model."""

UNREACHABLE = frozenset({3, 6, 7, 28, 35, 37, 60})
"""Exit statuses of curl by which a source cannot be had, whatever is asked of it: malformed, no such name, refused, no
answer, TLS fails, no such file, unknown certificate. Others may only mean that a server does not like HEAD."""
REFUSED = frozenset({401, 404, 410})
"""HTTP statuses likewise; 403 is not among them: a signed URL may be good for GET alone."""


@dataclass(frozen=True)
class Download:
    """One file that a host is to have.

    :param source: an http, https or file URL, or, where it equals `path`, a file that is used where it lies
    :param sha256: 64 hexadecimal digits, in lower case
    :param path: where it ends up, an absolute path; the name of the partial file follows from it
    :param stamp: absolute path of the stamp
    :param prefix: of the settings that it comes from, e.g. ``model_`` for ``model_source``: for the sentences
    """

    source: str
    sha256: str
    path: str
    stamp: str
    prefix: str

    @property
    def in_place(self) -> bool:
        """Whether nothing is downloaded."""
        return self.source == self.path

    @property
    def folder(self) -> str:
        return str(PurePosixPath(self.path).parent)


@dataclass(frozen=True)
class Found:
    """How far a host is with one download.

    :param sha256: of what stands at the final path, where that is known
    :param readable: the user who is to read the file can; true where that cannot be told yet
    :param partial: bytes that a broken download left
    :param free: free bytes of the file system that the file goes to, None when not known
    :param http: status of the source's answer; 0 when it was not asked or is no http
    :param size: bytes of the source, None when not known
    :param error: curl's error about the source
    """

    state: State = "unknown"
    sha256: str = ""
    readable: bool = True
    partial: int = 0
    free: int | None = None
    http: int = 0
    size: int | None = None
    error: str = ""


def look(downloads: Sequence[Download], reader: str) -> str:
    """The command whose output `parse` reads; it asks a source only where something is still to be downloaded.

    :param reader: the system user who is to read the files
    """
    calls = [f"look {number} {_arguments(download, reader)} &" for number, download in enumerate(downloads)]
    return "\n".join([_text("common.sh"), _text("look.sh"), *calls, "wait"])


def parse(lines: Sequence[str], count: int) -> list[Found]:
    """Read the output of `look` for that many downloads; lines that it does not know are passed over."""
    words: list[dict[str, str]] = [{} for _ in range(count)]
    for line in lines:
        number, _, rest = line.partition(" ")
        if number.isdecimal() and int(number) < count:
            key, _, value = rest.partition(" ")
            words[int(number)][key] = value
    return [_found(known) for known in words]


def _found(words: Mapping[str, str]) -> Found:
    free = _number(words.get("free", ""))
    return Found(
        state=next((state for state in STATES if state == words.get("state")), "unknown"),
        sha256=words.get("sha256", ""),
        readable="unreadable" not in words,
        partial=_number(words.get("partial", "")) or 0,
        free=None if free is None else free * 1024,
        http=_number(words.get("http", "")) or 0,
        size=_number(words.get("size", "")),
        error=words.get("error", ""),
    )


def _number(text: str) -> int | None:
    return int(text) if re.fullmatch("[0-9]{1,18}", text) else None


def problems(downloads: Sequence[Download], found: Sequence[Found]) -> list[str]:
    """Why a host cannot have the files or use them, one sentence each, without its name; what is not known is no problem."""
    sentences = []
    for download, seen in zip(downloads, found, strict=True):
        wanted = f"{download.prefix}source = {download.source}"
        if download.in_place:
            sentences += _problems_in_place(wanted, download, seen)
        elif seen.state in ("absent", "wrong"):
            sentences += _problems_of_source(wanted, seen)
        # What is to be replaced gets a mode that all may read.
        if not seen.readable and (download.in_place or seen.state != "wrong"):
            way_out = "allow it (chmod), or move the file to a folder that all may enter"
            sentences.append(f"the user of the service cannot read {download.path}: {way_out}.")
    return sentences + _problems_of_space(downloads, found)


def _problems_in_place(wanted: str, download: Download, seen: Found) -> list[str]:
    if seen.state == "absent":
        return [f"{wanted} is no file there: correct the path, or put the file there."]
    if seen.state == "wrong":
        found = f"has the SHA-256 {seen.sha256}, and {download.prefix}sha256 is {download.sha256}"
        return [f"{wanted} {found}: correct the one or the other."]
    return []


def _problems_of_source(wanted: str, seen: Found) -> list[str]:
    status = re.match(r"curl: \(([0-9]+)\)", seen.error)
    if status and int(status[1]) in UNREACHABLE:
        return [f"{wanted} cannot be reached from there ({seen.error}): correct it, or run again when it can be reached."]
    if seen.http in REFUSED:
        return [f"{wanted} cannot be had (HTTP status {seen.http}): correct it, or make it public there."]
    return []


def _problems_of_space(downloads: Sequence[Download], found: Sequence[Found]) -> list[str]:
    missing: dict[str, int] = {}
    free: dict[str, int] = {}
    for download, seen in zip(downloads, found, strict=True):
        if not download.in_place and seen.state in ("absent", "wrong") and seen.size is not None and seen.free is not None:
            missing[download.folder] = missing.get(download.folder, 0) + max(seen.size - seen.partial, 0)
            free[download.folder] = seen.free
    return [
        f"{folder} has {free[folder] // MEBIBYTE} MiB free, and the download needs {-(-needed // MEBIBYTE)} MiB"
        f" and leaves {RESERVE // MEBIBYTE} MiB free: free some space there, or choose another folder."
        for folder, needed in missing.items()
        if needed and free[folder] < needed + RESERVE
    ]


def script(host: str, downloads: Sequence[Download], reader: str) -> str:
    """A shell script that brings every file to its final path; it ends with `SAID` and a sentence when it cannot.

    What is verified is passed over, what was broken off goes on, and the script's text depends on nothing but the
    arguments: a later run follows the one that is still at work.

    :param host: name in the inventory, for the sentences
    :param reader: the system user who is to read the files
    """
    calls = [f"fetch {_arguments(download, reader)} {shlex.quote(download.prefix)}" for download in downloads]
    values = [f"host={shlex.quote(host)}", f"reserve={RESERVE}"]
    return "\n".join([_text("common.sh"), _text("fetch.sh"), *values, *calls, ""])


def _text(name: str) -> str:
    return (SCRIPTS / name).read_text()


def _arguments(download: Download, reader: str) -> str:
    words = (download.source, download.sha256, download.path, download.stamp, reader)
    return " ".join(shlex.quote(word) for word in words)
