"""daemon.json: what is there stays and holds, ours comes and goes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roles.docker import daemon
from roles.docker.daemon import Options, added, merge, ours, overlay, read, render, same, without

KEYS = st.sampled_from(["live-restore", "log-opts", "log-driver", "features", "max-size", "max-file", "cdi", "data-root", "x"])
SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=2)
OPTIONS = st.recursive(
    st.dictionaries(KEYS, SCALARS, max_size=4), lambda inner: st.dictionaries(KEYS, SCALARS | inner, max_size=4), max_leaves=8
)


def filled(options: Options) -> Options:
    """The same without empty dictionaries, which mean nothing to Docker, and of which we cannot tell whose they were."""
    inner = {key: filled(value) if isinstance(value, dict) else value for key, value in options.items()}
    return {key: value for key, value in inner.items() if value != {}}


def leaves(options: Mapping[str, Any], path: tuple[str, ...] = ()) -> dict[tuple[str, ...], str]:
    """Path of a value that is no dictionary → the value, as JSON."""
    found = {}
    for key, value in options.items():
        if isinstance(value, dict) and value:
            found |= leaves(value, (*path, key))
        elif not isinstance(value, dict):
            found[(*path, key)] = json.dumps(value)
    return found


def changed(present: Options, recorded: Options, options: Options, cdi: bool = False) -> tuple[Options, Options]:
    """What the file says after us, and what we write down."""
    foreign = without(present, recorded)
    merged = merge(present, recorded, ours(foreign, options, (), cdi, swarm=False))
    return merged, added(merged, foreign)


@given(OPTIONS, OPTIONS, st.booleans())
def test_what_is_there_stays_with_its_value(present: Options, options: Options, cdi: bool) -> None:
    merged, _ = changed(present, {}, options, cdi)
    assert leaves(present).items() <= leaves(merged).items()


@given(OPTIONS, OPTIONS, st.booleans())
def test_a_second_time_changes_nothing(present: Options, options: Options, cdi: bool) -> None:
    merged, record = changed(present, {}, options, cdi)
    assert changed(merged, record, options, cdi) == (merged, record)


@given(OPTIONS, OPTIONS, st.booleans())
def test_what_we_have_written_down_can_be_taken_back(present: Options, options: Options, cdi: bool) -> None:
    merged, record = changed(present, {}, options, cdi)
    assert leaves(without(merged, record)) == leaves(present)


@given(OPTIONS.map(filled), OPTIONS, OPTIONS)
def test_another_wish_leaves_nothing_of_the_first(present: Options, first: Options, second: Options) -> None:
    merged, record = changed(present, {}, first)
    assert leaves(changed(merged, record, second)[0]) == leaves(changed(present, {}, second)[0])


@given(OPTIONS)
def test_what_is_written_is_read_again(options: Options) -> None:
    assert same(read(render(options, "")), options)


def test_a_file_of_a_users_own() -> None:
    text = '{\n    "data-root": "/srv/docker",\n    "log-opts": {"labels": "a"},\n    "registry-mirrors": ["https://mirror.example"]\n}\n'
    merged, record = changed(read(text), {}, {})
    assert render(merged, text) == (
        "{\n"
        '    "data-root": "/srv/docker",\n'
        '    "log-opts": {\n        "labels": "a",\n        "max-size": "10m",\n        "max-file": "3"\n    },\n'
        '    "registry-mirrors": [\n        "https://mirror.example"\n    ],\n'
        '    "live-restore": true\n'
        "}\n"
    )
    assert record == {"log-opts": daemon.ROTATION, "live-restore": True}


@pytest.mark.parametrize(
    ("present", "options", "flags", "logs"),
    [
        ({}, {}, (), daemon.ROTATION),
        ({"log-driver": "local"}, {}, (), daemon.ROTATION),
        ({"log-driver": "journald"}, {}, (), None),
        ({}, {"log-driver": "journald"}, (), None),
        ({"log-opts": {"max-size": "1g"}}, {}, (), {"max-size": "1g"}),
        ({}, {"log-opts": {"max-size": "50m"}}, (), {"max-size": "50m"}),
        ({}, {}, ("--log-driver",), None),
        ({}, {}, ("--log-opt",), None),
    ],
)
def test_logs_rotate_where_nobody_has_said_how_they_are_kept(
    present: Options, options: Options, flags: tuple[str, ...], logs: Options | None
) -> None:
    assert overlay(present, ours(present, options, flags, cdi=False, swarm=False)).get("log-opts") == logs


def test_containers_survive_the_daemon_unless_somebody_said_otherwise_or_it_cannot_be() -> None:
    assert ours({}, {}, (), cdi=False, swarm=False)["live-restore"] is True
    assert "live-restore" not in ours({"live-restore": False}, {}, (), cdi=False, swarm=False)
    assert "live-restore" not in ours({}, {}, ("--live-restore",), cdi=False, swarm=False)
    assert "live-restore" not in ours({}, {}, (), cdi=False, swarm=True)


def test_cdi_is_switched_on_where_it_is_needed_and_not_switched_off_by_hand() -> None:
    assert ours({}, {}, (), cdi=True, swarm=False)["features"] == {"cdi": True}
    assert "features" not in ours({}, {}, (), cdi=False, swarm=False)
    assert "features" not in ours({"features": {"cdi": False}}, {}, (), cdi=True, swarm=False)
    assert "features" not in ours({}, {}, ("--feature",), cdi=True, swarm=False)


def test_what_the_user_has_changed_of_ours_is_the_users() -> None:
    merged, record = changed({}, {}, {})
    merged["live-restore"] = False
    again, record = changed(merged, record, {})
    assert again["live-restore"] is False
    assert "live-restore" not in record


def test_a_wish_that_the_file_contradicts_is_named() -> None:
    present = {"storage-driver": "btrfs", "default-ulimits": {"a": 1, "b": 2}, "debug": True}
    options = {"storage-driver": "overlay2", "default-ulimits": {"b": 3, "c": 4}, "debug": 1}
    assert daemon.conflicts(present, options) == ["storage-driver", "default-ulimits.b", "debug"]
    assert daemon.conflicts(present, {"default-ulimits": {"b": 2}, "debug": True}) == []


@pytest.mark.parametrize(("text", "why"), [("[]", "no JSON object"), ('{"a": 1,}', "line 1"), ("{\n# no\n}", "line 2")])
def test_a_file_that_is_none(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read(text)


def test_an_empty_file_has_no_options() -> None:
    assert read("\n") == {}
