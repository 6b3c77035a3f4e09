"""roles.gpus.catalog: what is known, checked against itself, and how a GPU is found in it."""

from __future__ import annotations

from itertools import combinations

import pytest
from pydantic import ValidationError

from roles.base.documentation import branches
from roles.gpus.catalog import Catalog, Chips, Generation, OpenModule, load, numbers, span

CATALOG = load()
NVIDIA = {key: generation for key, generation in CATALOG.generations.items() if generation.vendor == "nvidia"}
MEMBERS = [(key, generation, member) for key, generation in CATALOG.generations.items() for member in generation.members]


@pytest.mark.parametrize("vendor", ["nvidia", "amd", "intel"])
def test_ranges_that_overlap_are_one_within_a_wider_one(vendor: str) -> None:
    """So that the narrowest one decides beyond doubt."""
    ranges = [set(span(ids)) for _, generation, member in MEMBERS if generation.vendor == vendor for ids in member.ids]
    overlaps = [(one, other) for one, other in combinations(ranges, 2) if one & other]
    assert [(one, other) for one, other in overlaps if not (one < other or other < one)] == []


def test_ranges_run_upwards() -> None:
    assert [ids for _, _, member in MEMBERS for ids in member.ids if not span(ids)] == []


def test_a_chip_is_named_once() -> None:
    names = [(generation.vendor, name) for _, generation, member in MEMBERS for name in member.chips]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("begin", "generation"),
    [
        ("GF", "fermi"),
        ("GK", "kepler"),
        ("GM", "maxwell"),
        ("GP", "pascal"),
        ("GV", "volta"),
        ("TU", "turing"),
        ("GA", "ampere"),
        ("AD", "ada"),
        ("GH", "hopper"),
        ("GB", "blackwell"),
        ("GR", "rubin"),
    ],
)
def test_every_beginning_of_a_chip_of_nvidia_is_named_by_one_generation(begin: str, generation: str) -> None:
    assert {key for key, g in NVIDIA.items() for member in g.members for name in member.chips if name.startswith(begin)} == {
        generation
    }


def test_nvidia_needs_branches_and_a_flavour_and_others_have_none() -> None:
    for key, generation in CATALOG.generations.items():
        has = generation.open_module, generation.first_branch, generation.last_branch
        assert (generation.open_module is not None) if key in NVIDIA else has == (None, None, None), key
        # What has no open module needs a branch that still has the other.
        assert generation.open_module is not OpenModule.IMPOSSIBLE or generation.last_branch, key


def test_every_branch_that_a_generation_names_is_known() -> None:
    named = {branch for g in NVIDIA.values() for branch in (g.first_branch, g.last_branch) if branch}
    assert named - set(CATALOG.branches) == set()


@pytest.mark.parametrize(
    ("device", "generation", "capability"),
    [
        ("06c0", "fermi", "2.0"),
        ("1180", "kepler", "3.0"),
        ("1024", "kepler", "3.5"),
        ("102d", "kepler", "3.7"),
        ("1380", "maxwell", "5.0"),
        ("13c2", "maxwell", "5.2"),
        ("15f8", "pascal", "6.0"),
        ("1b06", "pascal", "6.1"),
        ("1db4", "volta", "7.0"),
        ("1f82", "turing", "7.5"),
        ("2182", "turing", "7.5"),
        ("20b0", "ampere", "8.0"),
        ("2204", "ampere", "8.6"),
        ("27e0", "ada", "8.9"),
        ("2330", "hopper", "9.0"),
        ("2901", "blackwell", "10.0"),
        ("3182", "blackwell", "10.3"),
        ("2b00", "blackwell", "11.0"),
        ("2b85", "blackwell", "12.0"),
        ("2d04", "blackwell", "12.0"),
        ("2f58", "blackwell", "12.0"),
        ("2e12", "blackwell", "12.1"),
        ("3340", "blackwell", None),
        ("3040", "rubin", "13.0"),
    ],
)
def test_an_id_of_nvidia_is_found(device: str, generation: str, capability: str | None) -> None:
    key, member = CATALOG.find("nvidia", None, device) or ("", None)
    assert (key, member and member.compute_capability) == (generation, capability)


@pytest.mark.parametrize("device", ["0fb0", "10ef", "10f0", "1aef", "228b", "22a3", "22bc", "22eb", "2f80", "0a20", "ffff"])
def test_audio_switches_and_older_gpus_are_not_found(device: str) -> None:
    assert CATALOG.find("nvidia", None, device) is None


@pytest.mark.parametrize(
    ("vendor", "device", "generation", "target"),
    [
        ("amd", "67df", "polaris", "gfx803"),
        ("amd", "694e", "polaris", "gfx803"),
        ("amd", "66af", "vega20", "gfx906"),
        ("amd", "73bf", "rdna2", "gfx1030"),
        ("amd", "73f0", "rdna3", "gfx1102"),
        ("amd", "73ff", "rdna2", "gfx1032"),
        ("amd", "744c", "rdna3", "gfx1100"),
        ("amd", "1586", "rdna3.5", "gfx1151"),
        ("amd", "7590", "rdna4", "gfx1200"),
        ("amd", "7550", "rdna4", "gfx1201"),
        ("amd", "74a1", "cdna3", "gfx942"),
        ("amd", "75a0", "cdna4", "gfx950"),
        ("intel", "56a5", "alchemist", None),
        ("intel", "e211", "battlemage", None),
    ],
)
def test_an_id_of_others_is_found(vendor: str, device: str, generation: str, target: str | None) -> None:
    key, member = CATALOG.find(vendor, None, device) or ("", None)
    assert (key, member and member.gfx_target) == (generation, target)


@pytest.mark.parametrize(
    ("vendor", "chip", "capability"),
    [
        ("nvidia", "GP100", "6.0"),
        ("nvidia", "GP102", "6.1"),
        ("nvidia", "GB100", "10.0"),
        ("nvidia", "GB202", "12.0"),
        ("nvidia", "GB20B", "12.1"),
        ("nvidia", "gk208", "3.5"),
        ("amd", "Strix", "gfx1150"),
        ("amd", "Strix Halo", "gfx1151"),
    ],
)
def test_the_longest_beginning_of_a_chip_decides(vendor: str, chip: str, capability: str) -> None:
    _, member = CATALOG.find(vendor, chip, None) or ("", None)
    assert member and (member.compute_capability or member.gfx_target) == capability


def test_the_chip_counts_more_than_the_id() -> None:
    assert (CATALOG.find("nvidia", "GA102", "1b06") or ("",))[0] == "ampere"


def test_a_vendor_has_only_its_own_ids() -> None:
    assert CATALOG.find("amd", None, "1b06") is None
    assert CATALOG.find("other", "GP102", "1b06") is None


def test_an_entry_without_a_source_is_refused() -> None:
    with pytest.raises(ValidationError, match="source"):
        Generation.model_validate({"vendor": "nvidia", "title": "X", "members": []})
    with pytest.raises(ValidationError, match="ids"):
        Chips.model_validate({"source": "x", "ids": ["1B06"]})


@pytest.mark.parametrize(
    ("generation", "words"),
    [("pascal", "up to 580"), ("blackwell", "570 and newer"), ("ampere", "all"), ("rdna4", "-")],
)
def test_the_readme_says_which_branches_drive_a_generation(generation: str, words: str) -> None:
    assert branches(CATALOG.generations[generation]) == words


def test_versions_are_compared_by_number() -> None:
    assert numbers("9.0") < numbers("10.0")


def test_the_whole_catalog_is_read() -> None:
    assert isinstance(CATALOG, Catalog)
    assert len(CATALOG.generations) > 20
