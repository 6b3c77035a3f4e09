"""Package sources in both formats of apt, as found in the field, and as nobody would write them."""

from __future__ import annotations

import string

from hypothesis import given
from hypothesis import strategies as st

from roles.base.apt import Source, parse_deb822, parse_one_line

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
