"""The manifest of a release, and the reading of help texts."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roles.llama_cpp.manifest import Manifest, missing_flags, parse_flags
from tests.unit.llama_cpp.examples import NEWER, OLDER, help_text, manifest


def test_what_is_written_is_read_again() -> None:
    assert Manifest.from_json(manifest().to_json()) == manifest()


def test_a_manifest_of_before_there_were_images_is_read() -> None:
    data = json.loads(manifest().to_json())
    del data["image"]
    assert Manifest.from_json(json.dumps(data)) == manifest()


@pytest.mark.parametrize("field", sorted(json.loads(manifest().to_json()).keys() - {"image"}))
def test_a_manifest_that_lacks_a_field_is_none(field: str) -> None:
    data = json.loads(manifest().to_json())
    del data[field]
    assert Manifest.from_json(json.dumps(data)) is None


@given(st.text() | st.sampled_from(["null", "1", "[]", '"release"', "{}", '{"release": 1, "commit": null}']))
def test_no_text_makes_the_reading_of_a_manifest_raise(text: str) -> None:
    assert Manifest.from_json(text) is None


@pytest.mark.parametrize("commit", [OLDER, NEWER])
def test_the_flags_of_the_rpc_server(commit: str) -> None:
    words = "--cache --device --help --host --port --threads -H -c -d -h -p -t"
    assert parse_flags(help_text(commit, "rpc-server")) == tuple(words.split())


@pytest.mark.parametrize("commit", [OLDER, NEWER])
def test_the_flags_of_llama_server(commit: str) -> None:
    flags = parse_flags(help_text(commit, "llama-server"))
    assert {"--rpc", "--metrics", "--cache-ram", "-cram", "-ngl", "--host", "--port", "--fit"} <= set(flags)
    assert len(flags) > 300
    assert not [flag for flag in flags if not flag.lstrip("-").isascii() or flag.endswith((",", "."))]


@pytest.mark.parametrize("commit", [OLDER, NEWER])
@pytest.mark.parametrize("target", ["llama-bench", "llama-fit-params"])
def test_the_flags_of_the_heads_tools(commit: str, target: str) -> None:
    flags = parse_flags(help_text(commit, target))
    assert {"--rpc", "-m", "--model", "-ngl"} <= set(flags)


def test_a_flag_that_only_a_description_mentions_does_not_count() -> None:
    lines = [
        "-a,    --all, --everything              all of it, -1 for more, see --other",
        "                                        --not-this or -n",
        "  -b | --both <x|-y>",
        "- none: of them",
    ]
    assert parse_flags(lines) == ("--all", "--both", "--everything", "-a", "-b")


@given(st.lists(st.text()))
def test_no_help_text_makes_the_reading_raise(lines: list[str]) -> None:
    flags = parse_flags(lines)
    assert all(flag.startswith("-") for flag in flags)
    assert list(flags) == sorted(set(flags))


def test_what_a_build_does_not_know_is_named_in_order() -> None:
    assert missing_flags(manifest(), "rpc-server", ["--port", "--mem", "--host", "-m"]) == ["--mem", "-m"]
    assert missing_flags(replace(manifest(), flags={}), "rpc-server", ["--port"]) == ["--port"]
