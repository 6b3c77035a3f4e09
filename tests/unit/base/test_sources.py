"""Package sources in both formats of apt, as found in the field, and as nobody would write them."""

from __future__ import annotations

import string
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roles.base.apt import (
    COMPONENTS,
    LOOK,
    Apt,
    Repository,
    Source,
    components_text,
    parse_deb822,
    parse_one_line,
    read,
    without,
)
from tests.unit.base.debian import Debian

DEB822 = """\
Types: deb deb-src
# http://snapshot.example/archive/debian/20250520T000000Z
URIs: http://deb.example/debian/
Suites: bookworm
 bookworm-updates
Components: main non-free
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 -----END PGP PUBLIC KEY BLOCK-----

Enabled: no
Types: deb
URIs: http://off.example/debian
Suites: bookworm
Components: main


Types: deb-src
URIs: http://source.example/debian
Suites: bookworm
Components: main

Types: deb
URIs: http://deb.example/debian-security
Suites: bookworm-security
Components: main
"""

ONE_LINE = """\
# deb cdrom:[Debian 12]/ bookworm main
deb cdrom:[Debian_12]/ bookworm main
deb [arch=amd64 signed-by=/usr/share/keyrings/other.gpg] https://packages.other.example/apt stable main
deb-src http://deb.example/debian bookworm main
deb http://deb.example/debian bookworm main contrib # the usual one
deb http://deb.example/debian-security/ bookworm-security main
deb ./ flat/
"""


def test_deb822_is_read() -> None:
    key = "\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n -----END PGP PUBLIC KEY BLOCK-----"
    suites = ("bookworm", "bookworm-updates")
    assert parse_deb822(DEB822, "debian.sources") == [
        Source(
            "http://deb.example/debian", suites, ("main", "non-free"), "debian.sources", ("deb", "deb-src"), {"signed-by": key}
        ),
        Source("http://off.example/debian", ("bookworm",), ("main",), "debian.sources", enabled=False),
        Source("http://source.example/debian", ("bookworm",), ("main",), "debian.sources", ("deb-src",)),
        Source("http://deb.example/debian-security", ("bookworm-security",), ("main",), "debian.sources"),
    ]


def test_one_line_sources_are_read() -> None:
    found = parse_one_line(ONE_LINE, "sources.list")
    assert Source("http://deb.example/debian", ("bookworm",), ("main", "contrib"), "sources.list") in found
    assert Source("http://deb.example/debian", ("bookworm",), ("main",), "sources.list", ("deb-src",)) in found
    assert Source(".", ("flat/",), (), "sources.list") in found
    (other,) = (source for source in found if "other" in source.uri)
    assert other.options == {"architectures": "amd64", "signed-by": "/usr/share/keyrings/other.gpg"}


def test_what_apt_does_not_install_from_is_told() -> None:
    found = parse_deb822(DEB822) + parse_one_line(ONE_LINE)
    assert {source.uri for source in found if not source.binary} == {
        "http://off.example/debian",
        "http://source.example/debian",
        "http://deb.example/debian",
    }


@given(st.text())
def test_no_text_breaks_the_parsers(text: str) -> None:
    for source in parse_deb822(text) + parse_one_line(text):
        assert isinstance(source.uri, str)


words = st.lists(st.text(string.ascii_lowercase + "-/", min_size=1), min_size=1, max_size=4)
spaces = st.sampled_from([" ", "  ", "\t", "\n ", "\n\t"])


@given(suites=words, components=words, separator=spaces, case=st.sampled_from([str.lower, str.title, str.upper]))
def test_what_is_written_as_deb822_is_read_the_same(suites, components, separator, case) -> None:  # type: ignore[no-untyped-def]
    text = "\n".join(
        f"{case(field)}: {separator.join(values)}"
        for field, values in (
            ("types", ["deb"]),
            ("uris", ["http://deb.example/debian"]),
            ("suites", suites),
            ("components", components),
        )
    )
    assert parse_deb822(text) == [Source("http://deb.example/debian", tuple(suites), tuple(components))]


@given(suites=words, components=words, options=st.sampled_from(["", " [arch=amd64]", " [ signed-by=/a b=c ]"]))
def test_both_formats_say_the_same(suites, components, options) -> None:  # type: ignore[no-untyped-def]
    lines = "\n".join(f"deb{options} http://deb.example/debian {suite} {' '.join(components)} # why" for suite in suites)
    stanza = f"Types: deb\nURIs: http://deb.example/debian\nSuites: {' '.join(suites)}\nComponents: {' '.join(components)}"
    found = parse_one_line(lines)
    assert tuple(source.suites[0] for source in found) == parse_deb822(stanza)[0].suites
    assert {source.components for source in found} == {tuple(components)}


DOCKER = Repository("docker", "https://download.docker.com/linux/debian", ("bookworm",), ("stable",), "https://x", "0" * 40)


def test_a_line_of_the_same_repository_goes_and_the_others_stay() -> None:
    text = (
        "# Docker\n"
        "deb [arch=amd64 signed-by=/etc/apt/keyrings/docker.gpg] http://download.docker.com/linux/debian/ bookworm stable\n"
        "deb http://deb.example/debian bookworm main\n"
    )
    assert without({"/etc/apt/sources.list": text}, DOCKER) == {
        "/etc/apt/sources.list": "# Docker\ndeb http://deb.example/debian bookworm main\n"
    }


def test_a_file_that_has_nothing_else_goes() -> None:
    line = "deb-src https://download.docker.com/linux/debian bookworm stable test\n"
    stanza = "Types: deb\nURIs: https://download.docker.com/linux/debian\nSuites: bookworm\nComponents: stable\n"
    assert without({"a.list": line, "b.sources": f"\n{stanza}\n"}, DOCKER) == {"a.list": "", "b.sources": ""}


def test_other_suites_and_other_addresses_of_a_stanza_stay() -> None:
    text = (
        "# mine\nTypes: deb\nURIs: https://download.docker.com/linux/debian\n https://other.example/debian\n"
        "Suites: bookworm trixie\nComponents: stable\nSigned-By: /x.asc\n\nTypes: deb\nURIs: http://last.example\nSuites: ./\n"
    )
    (left,) = without({"x.sources": text}, DOCKER).values()
    assert [(source.uri, source.suites, source.options) for source in parse_deb822(left)] == [
        ("https://other.example/debian", ("bookworm", "trixie"), {"signed-by": "/x.asc"}),
        ("https://download.docker.com/linux/debian", ("trixie",), {"signed-by": "/x.asc"}),
        ("http://last.example", ("./",), {}),
    ]


@pytest.mark.parametrize(
    ("line", "uri"),
    [
        (
            "deb [signed-by=/x.gpg] https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64/ /",
            "https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64",
        ),
        (
            "deb https://nvidia.github.io/libnvidia-container/stable/deb/$(ARCH) /",
            "https://nvidia.github.io/libnvidia-container/stable/deb/amd64",
        ),
        ("deb http://vendor.example/apt ./", "https://vendor.example/apt"),
    ],
)
def test_a_repository_without_suites_is_recognised(line: str, uri: str) -> None:
    flat = Repository("flat", uri, ("/",), (), "https://x", "0" * 40)
    assert "Components" not in flat.text
    assert without({"x.list": f"{line}\n"}, flat) == {"x.list": ""}


@pytest.mark.parametrize(
    "line",
    [
        "deb https://download.docker.com/linux/debian trixie stable",
        "deb https://download.docker.com/linux/ubuntu bookworm stable",
        "# deb https://download.docker.com/linux/debian bookworm stable",
    ],
)
def test_what_is_another_repository_stays(line: str) -> None:
    assert without({"x.list": f"{line}\n"}, DOCKER) == {}


def test_a_stanza_that_is_switched_off_and_our_own_file_stay() -> None:
    off = DOCKER.text.replace("Types: deb", "Types: deb\nEnabled: no")
    assert without({"x.sources": off, DOCKER.file: DOCKER.text}, DOCKER) == {}


ours = st.sampled_from(["https://download.docker.com/linux/debian", "http://download.docker.com/linux/debian/"])
foreign = st.sampled_from(["http://deb.example/debian", "https://download.docker.com/linux/ubuntu", "file:/srv"])
suites = st.lists(st.sampled_from(["bookworm", "trixie", "sid"]), min_size=1, max_size=3, unique=True)
stanza = st.builds(
    lambda uris, suites, off: f"Types: deb\nURIs: {' '.join(uris)}\nSuites: {' '.join(suites)}\nComponents: main\n{off}",
    st.lists(ours | foreign, min_size=1, max_size=3, unique=True),
    suites,
    st.sampled_from(["", "Enabled: no\n", "# why\n"]),
)


def _entries(text: str) -> set[tuple[str, str]]:
    """What apt reads: an address with one suite each."""
    return {(source.uri, suite) for source in parse_deb822(text) if source.enabled for suite in source.suites}


@given(st.lists(stanza, max_size=4))
def test_nothing_is_lost_but_the_repository(stanzas: list[str]) -> None:
    text = "\n".join(stanzas)
    left = without({"x.sources": text}, DOCKER).get("x.sources", text)
    gone = {(uri, suite) for uri, suite in _entries(text) if "docker.com/linux/debian" in uri and suite == "bookworm"}
    assert _entries(left) == _entries(text) - gone
    assert left.count("Enabled: no") == text.count("Enabled: no")
    assert without({"x.sources": left}, DOCKER) == {}


@given(st.text())
def test_a_file_without_the_repository_is_not_touched(text: str) -> None:
    assert without({"x.sources": text, "x.list": text}, DOCKER) == {}


ARCHIVE = (
    "Types: deb\nURIs: http://deb.example/debian\nSuites: bookworm bookworm-updates\nComponents: main contrib\n"
    "Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n"
)
VENDOR = "deb https://apt.vendor.example bookworm main\n"
HOST = Apt({"/etc/apt/sources.list.d/debian.sources": ARCHIVE}, "bookworm", "debian")


def test_a_component_comes_from_where_main_comes_from_with_the_same_options() -> None:
    text = components_text(HOST, ["contrib", "non-free-firmware"])
    assert text == (
        "Types: deb\nURIs: http://deb.example/debian\nSuites: bookworm\nComponents: non-free-firmware\n"
        "Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n"
        "\nTypes: deb\nURIs: http://deb.example/debian\nSuites: bookworm-updates\nComponents: non-free-firmware\n"
        "Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n"
    )
    again = Apt({**HOST.files, COMPONENTS: text}, "bookworm", "debian")
    assert components_text(again, ["contrib", "non-free-firmware"]) == text
    # Another role may want less, or something else.
    assert components_text(again, ["contrib"]) == text
    assert "Components: non-free non-free-firmware\n" in components_text(again, ["non-free"])


def test_a_component_that_the_user_has_switched_on_is_not_repeated() -> None:
    user = Apt({"/etc/apt/sources.list": "deb http://deb.example/debian bookworm main non-free\n"}, "bookworm", "debian")
    assert components_text(user, ["non-free"]) == ""


def test_another_vendors_main_is_not_the_distributions() -> None:
    files = {**HOST.files, "/etc/apt/sources.list": VENDOR}
    lists = {"apt.vendor.example_dists_bookworm_InRelease": "Vendor", "deb.example_debian_dists_bookworm_InRelease": "Debian"}
    assert "vendor" not in components_text(Apt(files, "bookworm", "debian", lists=lists), ["non-free"])
    # Before anything was fetched, the key tells.
    signed = VENDOR.replace("deb ", "deb [signed-by=/usr/share/keyrings/vendor.gpg] ")
    assert "vendor" not in components_text(Apt({**HOST.files, "x.list": signed}, "bookworm", "debian"), ["non-free"])


def test_another_release_beside_the_own_one_gets_no_component() -> None:
    files = {**HOST.files, "/etc/apt/sources.list": "deb http://deb.example/debian testing main\n"}
    assert "testing" not in components_text(Apt(files, "bookworm", "debian"), ["non-free"])
    stable = Apt({"/etc/apt/sources.list": "deb http://deb.example/debian stable main\n"}, "bookworm", "debian")
    assert "Suites: stable\n" in components_text(stable, ["non-free"])


def test_apt_accepts_the_file_beside_the_entries_that_it_copies(tmp_path: Path) -> None:
    debian = Debian(tmp_path)
    inline = "\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n mDMEZ\n -----END PGP PUBLIC KEY BLOCK-----"
    (debian.etc / "sources.list.d/debian.sources").write_text(ARCHIVE.replace("bookworm-updates", "bookworm-security"))
    (debian.etc / "sources.list").write_text("deb [trusted=yes arch=amd64,i386] http://two.example/debian bookworm main\n")
    (debian.etc / "sources.list.d/inline.sources").write_text(
        f"Types: deb\nURIs: http://three.example/debian\nSuites: bookworm\nComponents: main\nSigned-By:{inline}\n"
    )
    text = components_text(debian.look(), ["non-free"])
    assert text.count("Components: non-free\n") == 3
    path = debian.etc / "sources.list.d/gpuquilt-components.sources"
    path.write_text(text)
    assert "E: " not in debian.run("apt-get", "update", "--print-uris").stderr
    # The fault that the copied options prevent.
    path.write_text("".join(line for line in text.splitlines(keepends=True) if not line.startswith("Signed-By: /")))
    assert "Conflicting values set for option Signed-By" in debian.run("apt-get", "update", "--print-uris").stderr


WORDS = st.sampled_from(["file", "|", "key", "fingerprint", "list", "os", "package"])


@given(st.lists(st.text() | st.builds("{} {}".format, WORDS, st.text())))
def test_reading_a_host_never_raises(lines: list[str]) -> None:
    assert isinstance(read(lines), Apt)


def test_the_fact_reads_this_computer() -> None:
    lines = subprocess.run(["sh", "-c", LOOK], capture_output=True, text=True, check=True).stdout.splitlines()
    seen = read(lines)
    assert seen.codename
    assert seen.sources
