"""What /etc/docker/daemon.json is to say: the user's own, and ours where he says nothing. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import Any

Options = dict[str, Any]
"""What a daemon.json holds: option → value, as JSON knows them."""

FILE = "/etc/docker/daemon.json"
RECORD = "/var/lib/gpuquilt/docker.json"
"""Where we remember what in that file is ours, in the same form."""

ROTATION = {"max-size": "10m", "max-file": "3"}
ROTATES = frozenset({"", "json-file", "local"})
"""The log drivers that know these options; the empty one is Docker's default, json-file."""


def read(text: str) -> Options:
    """The options that a file holds; an empty file is one without options, as it is for Docker.

    :raises ValueError: it is no JSON object; the text says why
    """
    if not text.strip():
        return {}
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"line {error.lineno}: {error.msg}") from None
    if not isinstance(found, dict):
        raise ValueError("it is no JSON object")
    return found


def ours(present: Mapping[str, Any], options: Options, flags: Collection[str], cdi: bool, swarm: bool) -> Options:
    """What is to be in the file by us: what the inventory wants, and our defaults where nobody has said anything.

    :param present: what the file says beside what we have put there
    :param options: what the inventory wants
    :param flags: options that the daemon is started with, such as ``--log-opt``: one that is in the file as well, and it
        does not start
    :param cdi: whether it must be told to use CDI
    :param swarm: it is a node of a swarm, which does not go with live-restore
    """
    said = overlay(present, options)
    wanted: Options = dict(options)
    if "live-restore" not in said and "--live-restore" not in flags and not swarm:
        wanted["live-restore"] = True
    rotates = str(said.get("log-driver", "")) in ROTATES and not {"--log-driver", "--log-opt"} & set(flags)
    if rotates and not set(ROTATION) & set(_within(said, "log-opts")):
        wanted = overlay(wanted, {"log-opts": ROTATION})
    if cdi and "cdi" not in _within(said, "features") and "--feature" not in flags:
        wanted = overlay(wanted, {"features": {"cdi": True}})
    return wanted


def uses_cdi(options: Options) -> bool:
    """Whether they say that CDI is to be used."""
    return _within(options, "features").get("cdi") is True


def _within(options: Options, key: str) -> Options:
    value = options.get(key)
    return value if isinstance(value, dict) else {}


def without(present: Mapping[str, Any], recorded: Mapping[str, Any]) -> Options:
    """What the file says without what is still as we have put it there; a dictionary of which nothing is left goes, too.

    :param recorded: what we have put there
    """
    left: Options = {}
    for key, value in present.items():
        if key not in recorded:
            left[key] = value
        elif isinstance(value, dict) and isinstance(recorded[key], dict):
            inner = without(value, recorded[key])
            if inner:
                left[key] = inner
        elif not same(value, recorded[key]):
            left[key] = value
    return left


def overlay(first: Mapping[str, Any], second: Mapping[str, Any]) -> Options:
    """Both, dictionaries one within the other; where both say something, the first holds. Its order stays."""
    both: Options = dict(first)
    for key, value in second.items():
        if key not in both:
            both[key] = value
        elif isinstance(both[key], dict) and isinstance(value, dict):
            both[key] = overlay(both[key], value)
    return both


def merge(present: Mapping[str, Any], recorded: Mapping[str, Any], wanted: Mapping[str, Any]) -> Options:
    """What the file is to say: what is not ours stays and holds, what was ours goes, what is wanted comes.

    :param recorded: what we have put there before
    :param wanted: what is to be there by us
    """
    foreign = without(present, recorded)
    merged = overlay(foreign, wanted)
    # Keys stay where they are in the file.
    return {key: merged[key] for key in [*present, *merged] if key in merged}


def added(merged: Mapping[str, Any], foreign: Mapping[str, Any]) -> Options:
    """What of the merged options is there by us.

    :param foreign: what was there without us
    """
    found: Options = {}
    for key, value in merged.items():
        if key not in foreign:
            found[key] = value
        elif isinstance(value, dict) and isinstance(foreign[key], dict):
            inner = added(value, foreign[key])
            if inner:
                found[key] = inner
    return found


def conflicts(foreign: Mapping[str, Any], options: Mapping[str, Any], path: str = "") -> list[str]:
    """The options that the inventory wants and that the file has with another value."""
    found = []
    for key, value in options.items():
        if key not in foreign or same(foreign[key], value):
            continue
        if isinstance(value, dict) and isinstance(foreign[key], dict):
            found += conflicts(foreign[key], value, f"{path}{key}.")
        else:
            found.append(f"{path}{key}")
    return found


def same(one: Any, other: Any) -> bool:
    """Whether two values are the same for JSON, where true is not 1."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def render(options: Options, before: str) -> str:
    """The file's text, indented as it was.

    :param before: its text until now
    """
    found = re.search(r"^([ \t]+)\S", before, re.MULTILINE)
    return json.dumps(options, indent=found[1] if found else 2, ensure_ascii=False) + "\n"
