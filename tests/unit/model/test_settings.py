"""What the settings of the model accept, and what they say of the rest."""

from __future__ import annotations

import pytest

from roles.base.settings import HostData, read_settings
from roles.model.files import files
from roles.model.settings import Settings, file_name

HASH = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
PARTS = [f"https://example.com/m-0000{number}-of-00003.gguf" for number in (1, 2, 3)]


def read(**data: object) -> tuple[Settings | None, list[str]]:
    """The settings as the inventory gives them, and the sentences."""
    keys = {f"model_{key}": value for key, value in data.items()}
    found, problems = read_settings([Settings], [HostData("head", frozenset({"heads"}), keys)])
    return (found["head"][Settings] if found else None), problems


def accepted(**data: object) -> Settings:
    settings, problems = read(**data)
    assert problems == []
    assert settings is not None
    return settings


def refused(**data: object) -> str:
    _, problems = read(**data)
    assert len(problems) == 1, problems
    assert problems[0].startswith("head: ")
    return problems[0]


def test_one_url() -> None:
    settings = accepted(source="https://example.com/a/m.gguf?download=true", sha256=HASH)
    assert files(settings)[0].path == f"/srv/models/{HASH[:12]}/m.gguf"
    assert [(file.sha256, file.in_place) for file in files(settings)] == [(HASH, False)]
    assert files(settings)[0].stamp == f"/var/lib/gpuquilt/models/srv/models/{HASH[:12]}/m.gguf.stamp"


def test_a_path_is_used_where_it_lies() -> None:
    settings = accepted(source="/home/me/models/m.gguf", sha256=HASH, folder="/data")
    assert files(settings)[0].path == "/home/me/models/m.gguf"
    assert files(settings)[0].in_place


def test_a_split_model() -> None:
    hashes = [HASH, "1" * 64, "2" * 64]
    settings = accepted(source=PARTS, sha256=hashes, folder="/data")
    assert [file.path for file in files(settings)] == [f"/data/{HASH[:12]}/m-0000{number}-of-00003.gguf" for number in (1, 2, 3)]
    assert [file.sha256 for file in files(settings)] == hashes


def test_another_model_of_the_same_name_leaves_the_one_that_is_served() -> None:
    paths = {files(accepted(source="https://example.com/m.gguf", sha256=sha256))[0].path for sha256 in (HASH, "0" * 64)}
    assert len(paths) == 2


def test_a_hash_in_capitals_is_the_same_hash() -> None:
    assert accepted(source="/m.gguf", sha256=HASH.upper()).sha256 == (HASH,)


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("https://example.com/My%20Model.gguf#x", "My Model.gguf"),
        ("file:///srv/a%2Bb.gguf", "a+b.gguf"),
        ("/srv/a%2Bb?.gguf", "a%2Bb?.gguf"),
        ("https://example.com", ""),
        ("https://example.com/a/", ""),
    ],
)
def test_the_name_of_the_file(source: str, name: str) -> None:
    assert file_name(source) == name


def test_source_and_hash_are_both_needed() -> None:
    assert "the setting model_sha256 is missing: the file's SHA-256" in refused(source="/m.gguf")
    assert "the setting model_source is missing: the model's GGUF file" in refused(sha256=HASH)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("ftp://example.com/m.gguf", "ftp is none of http, https, file"),
        ("models/m.gguf", "a relative path is none of http, https, file"),
        ("~/m.gguf", "a relative path is none of"),
        ("https://", "the URL names no server"),
        ("https://example.com/", "it names no file"),
        ("https://[example.com/m.gguf", "Invalid IPv6 URL"),
        ("/srv/models/", "it names no file"),
        ("https://example.com/%2e%2e", "it names no file"),
        ("/srv/m.gguf\nx", "cannot be printed"),
        ("https://example.com/m%0A.gguf", "cannot be printed"),
        (7, "valid tuple"),
        ([], "the list is empty"),
    ],
)
def test_a_source_that_is_none(source: object, reason: str) -> None:
    sentence = refused(source=source, sha256=HASH)
    assert "model_source = " in sentence
    assert reason in sentence
    assert "an http, https or file URL that the head can reach, or an absolute path on the head" in sentence


@pytest.mark.parametrize("sha256", [HASH[:-1], HASH + "0", "sha256:" + HASH, "", 7])
def test_a_hash_that_is_none(sha256: object) -> None:
    sentence = refused(source="/m.gguf", sha256=sha256)
    assert "model_sha256 = " in sentence
    assert "64 hexadecimal digits, as `sha256sum` prints it" in sentence


def test_as_many_hashes_as_files() -> None:
    assert "model_source and model_sha256 do not match (3 and 2 entries)" in refused(source=PARTS, sha256=[HASH] * 2)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        (PARTS[:1], "lists m-00001-of-00003.gguf alone: list all 3 parts"),
        (PARTS[:2], "lists 2 parts from m-00001-of-00003.gguf to m-00002-of-00003.gguf: list all 3 parts"),
        (PARTS[::-1], "lists 3 parts from m-00003-of-00003.gguf to m-00001-of-00003.gguf"),
        (
            [PARTS[0], PARTS[0], PARTS[2]],
            "lists 3 parts from m-00001-of-00003.gguf to m-00003-of-00003.gguf: list all 3 parts, each once",
        ),
        ([*PARTS[:2], "https://example.com/x-00003-of-00003.gguf"], "lists 3 parts"),
        ([*PARTS[:2], "https://example.com/m.gguf"], "lists m.gguf, which is no part of a split model"),
        (["/m-00000-of-00000.gguf", "/n.gguf"], "lists m-00000-of-00000.gguf, which is no part of a split model"),
    ],
)
def test_a_split_model_is_complete_and_in_order(source: list[str], found: str) -> None:
    assert f"model_source {found}" in refused(source=source, sha256=[HASH] * len(source))


def test_a_single_part_of_one_is_a_model() -> None:
    accepted(source="/srv/m-00001-of-00001.gguf", sha256=HASH)


def test_the_parts_lie_in_one_folder() -> None:
    assert "parts in several folders" in refused(
        source=[PARTS[0], PARTS[1], "/srv/models/../x/m-00003-of-00003.gguf"], sha256=[HASH] * 3
    )


@pytest.mark.parametrize("folder", ["models", "/srv/models/", "/", ""])
def test_a_folder_that_is_none(folder: str) -> None:
    assert "an absolute path without a slash at its end" in refused(source="/m.gguf", sha256=HASH, folder=folder)
