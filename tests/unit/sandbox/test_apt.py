"""Where packages come from: both formats of apt, as found in the field, and as nobody would write them."""

from __future__ import annotations

import string

from hypothesis import given
from hypothesis import strategies as st

from roles.sandbox import apt
from roles.sandbox.apt import Mirrors, Source

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
    assert apt.parse_deb822(DEB822) == [
        Source("http://deb.example/debian", ("bookworm", "bookworm-updates"), ("main", "non-free")),
        Source("http://deb.example/debian-security", ("bookworm-security",), ("main",)),
    ]


def test_one_line_sources_are_read() -> None:
    assert Source("http://deb.example/debian", ("bookworm",), ("main", "contrib")) in apt.parse_one_line(ONE_LINE)
    assert "http://source.example/debian" not in {source.uri for source in apt.parse_one_line(ONE_LINE)}


def test_the_mirror_is_the_one_of_the_own_release() -> None:
    for sources in (apt.parse_deb822(DEB822), apt.parse_one_line(ONE_LINE.replace(" stable ", " bullseye "))):
        assert apt.find_mirrors(sources, "bookworm") == Mirrors("http://deb.example/debian", "http://deb.example/debian-security")


def test_a_source_that_names_the_release_wins_over_one_that_says_stable() -> None:
    """Other vendors call their only suite `stable`; their packages are not Debian's."""
    assert apt.find_mirrors(apt.parse_one_line(ONE_LINE), "bookworm") == Mirrors(
        "http://deb.example/debian", "http://deb.example/debian-security"
    )


def test_a_source_that_says_stable_is_better_than_none() -> None:
    sources = apt.parse_one_line("deb http://deb.example/debian stable main")
    assert apt.find_mirrors(sources, "trixie") == Mirrors("http://deb.example/debian")


def test_a_cd_or_a_folder_is_no_mirror() -> None:
    sources = apt.parse_one_line("deb file:/srv/debian bookworm main\ndeb cdrom:[x]/ bookworm main")
    assert apt.find_mirrors(sources, "bookworm") is None


def test_the_sources_of_a_machine_are_read_back() -> None:
    text = apt.guest_sources(Mirrors("http://deb.example/debian", "http://deb.example/debian-security"), "trixie")
    assert apt.parse_deb822(text) == [
        Source("http://deb.example/debian", ("trixie", "trixie-updates"), ("main",)),
        Source("http://deb.example/debian-security", ("trixie-security",), ("main",)),
    ]


def test_only_what_reaches_a_mirror_is_passed_on() -> None:
    dump = [
        'Acquire::http "";',
        'Acquire::http::Proxy "http://proxy.example:3142";',
        'Acquire::Check-Date "false";',
        'Acquire::IndexTargets::deb::Packages::MetaKey "x";',
        'DPkg::Post-Invoke:: "/bin/rm -f everything";',
    ]
    assert apt.guest_options(dump) == [dump[1], dump[2]]


def test_the_machines_have_to_reach_the_proxy_if_there_is_one() -> None:
    mirrors = Mirrors("http://deb.example/debian")
    assert apt.probe_address(mirrors, []) == ("deb.example", 80)
    assert apt.probe_address(Mirrors("https://deb.example:8443/debian"), []) == ("deb.example", 8443)
    assert apt.probe_address(Mirrors("https://deb.example/debian"), []) == ("deb.example", 443)
    proxied = ['Acquire::http::Proxy "http://user:word@proxy.example:3142";']
    assert apt.probe_address(mirrors, proxied) == ("proxy.example", 3142)
    assert apt.probe_address(mirrors, ['Acquire::http::Proxy "DIRECT";']) == ("deb.example", 80)


@given(st.text())
def test_no_text_breaks_the_parsers(text: str) -> None:
    for source in apt.parse_deb822(text) + apt.parse_one_line(text):
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
    assert apt.parse_deb822(text) == [Source("http://deb.example/debian", tuple(suites), tuple(components))]


@given(suites=words, components=words, options=st.sampled_from(["", " [arch=amd64]", " [ signed-by=/a b=c ]"]))
def test_both_formats_say_the_same(suites, components, options) -> None:  # type: ignore[no-untyped-def]
    lines = "\n".join(f"deb{options} http://deb.example/debian {suite} {' '.join(components)} # why" for suite in suites)
    stanza = f"Types: deb\nURIs: http://deb.example/debian\nSuites: {' '.join(suites)}\nComponents: {' '.join(components)}"
    found = apt.parse_one_line(lines)
    assert tuple(source.suites[0] for source in found) == apt.parse_deb822(stanza)[0].suites
    assert {source.components for source in found} == {tuple(components)}
