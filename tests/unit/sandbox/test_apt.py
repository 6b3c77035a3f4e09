"""Where this computer gets its packages from, and what of that a machine is told."""

from __future__ import annotations

from roles.base.apt import parse_deb822, parse_one_line
from roles.sandbox import apt
from roles.sandbox.apt import Mirrors
from tests.unit.base.test_sources import DEB822, ONE_LINE


def test_the_mirror_is_the_one_of_the_own_release() -> None:
    for sources in (parse_deb822(DEB822), parse_one_line(ONE_LINE.replace(" stable ", " bullseye "))):
        assert apt.find_mirrors(sources, "bookworm") == Mirrors("http://deb.example/debian", "http://deb.example/debian-security")


def test_a_source_that_names_the_release_wins_over_one_that_says_stable() -> None:
    """Other vendors call their only suite `stable`; their packages are not Debian's."""
    assert apt.find_mirrors(parse_one_line(ONE_LINE), "bookworm") == Mirrors(
        "http://deb.example/debian", "http://deb.example/debian-security"
    )


def test_a_source_that_says_stable_is_better_than_none() -> None:
    sources = parse_one_line("deb http://deb.example/debian stable main")
    assert apt.find_mirrors(sources, "trixie") == Mirrors("http://deb.example/debian")


def test_a_cd_or_a_folder_is_no_mirror() -> None:
    sources = parse_one_line("deb file:/srv/debian bookworm main\ndeb cdrom:[x]/ bookworm main")
    assert apt.find_mirrors(sources, "bookworm") is None


def test_the_sources_of_a_machine_are_read_back() -> None:
    text = apt.guest_sources(Mirrors("http://deb.example/debian", "http://deb.example/debian-security"), "trixie")
    assert [(source.uri, source.suites, source.components) for source in parse_deb822(text)] == [
        ("http://deb.example/debian", ("trixie", "trixie-updates"), ("main",)),
        ("http://deb.example/debian-security", ("trixie-security",), ("main",)),
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
