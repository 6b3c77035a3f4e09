"""What apt says it would do, recorded from `apt-get --simulate` of Debian 12, is read as it is meant."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roles.base.apt import Change, changes, digest, install_command, simulation_failed

SIMULATIONS = Path(__file__).with_name("simulations")


def recorded(name: str) -> list[str]:
    return (SIMULATIONS / f"{name}.txt").read_text().splitlines()


def test_an_installation() -> None:
    found = changes(recorded("install"))
    assert len(found) == 8
    assert found[0] == Change(
        "install", "runc", "1.1.5+ds1-1+deb12u1", "", "Debian:12.15/oldstable, Debian-Security:12/oldstable-security"
    )
    assert found[-1] == Change("install", "docker.io", "20.10.24+dfsg1-1+deb12u1+b6", "", "Debian:12.15/oldstable")


def test_a_removal_that_brings_something_else() -> None:
    assert changes(recorded("remove")) == [
        Change("install", "locales-all", "2.36-9+deb12u14", "", "Debian:12.15/oldstable"),
        Change("remove", "locales", "2.36-9+deb12u14", "2.36-9+deb12u14"),
        Change("remove", "libc-bin", "2.36-9+deb12u14", "2.36-9+deb12u14"),
        Change("install", "postgresql-15", "15.20-0+deb12u1", "15.18-0+deb12u1", "Debian-Security:12/oldstable-security"),
    ]


def test_a_purge() -> None:
    assert changes(recorded("purge")) == [Change("remove", "curl", "7.88.1-10+deb12u14", "7.88.1-10+deb12u14")]


def test_what_apt_appends_when_something_stays_broken_for_a_while() -> None:
    """Forms of apt-pkg/algorithms.cc, and of a repository that does not say who it is."""
    lines = [
        "Inst libfoo:i386 [1.0] (1:2.0~rc1 localhost [i386]) []",
        "Inst bar (1.0 [all]) [libfoo:i386 ]",
        "Remv baz [1.0] [bar:amd64 on baz:amd64] []",
        "Purg qux []",
    ]
    assert changes(lines) == [
        Change("install", "libfoo:i386", "1:2.0~rc1", "1.0", "localhost"),
        Change("install", "bar", "1.0"),
        Change("remove", "baz", "1.0", "1.0"),
        Change("remove", "qux", ""),
    ]


def joined(*parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(*parts).map("".join)


def maybe(*parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.just("") | joined(*parts)


def some(alphabet: str) -> st.SearchStrategy[str]:
    return st.text(alphabet, min_size=1, max_size=8)


suites = joined(some("DUbuntV "), st.just(":"), some("0123."), st.just("/"), some("able-"))
names = joined(some("a0"), some("az09+.-"), maybe(st.just(":i386")))
versions = joined(maybe(some("1"), st.just(":")), some("012"), maybe(some("aZ9.+~")), maybe(st.just("-"), some("09az+.~")))
origins = maybe(suites, maybe(st.just(", "), suites)).map(str.strip)


@given(names, versions, st.just("") | versions, origins, st.sampled_from(["", " []", " [x:amd64 ]"]))
def test_what_is_printed_as_apt_does_is_read_the_same(name: str, version: str, before: str, origin: str, end: str) -> None:
    there = f" [{before}]" if before else ""
    line = f"Inst {name}{there} ({version}{f' {origin}' if origin else ''} [amd64]){end}"
    assert changes([line]) == [Change("install", name, version, before, origin)]


@given(st.lists(st.text() | st.builds("{} {}".format, st.sampled_from(["Inst", "Remv", "Purg", "Conf"]), st.text())))
def test_no_output_breaks_the_parser(lines: list[str]) -> None:
    assert all(change.action in ("install", "remove") for change in changes(lines))


def test_two_simulations_are_told_apart_by_what_they_change_alone() -> None:
    lines = recorded("install")
    assert digest(lines) == digest([line for line in lines if not line.startswith(("Conf", "Reading"))])
    assert digest(lines) != digest([line for line in lines if "tini" not in line])


def test_only_what_is_to_move_may_go_back() -> None:
    assert "--allow-downgrades" not in install_command(["x"], moved=False)
    assert "--allow-downgrades" in install_command(["x"], moved=True)


def test_a_package_that_apt_does_not_know() -> None:
    assert simulation_failed(["Reading package lists..."], ["E: Unable to locate package nosuch"]) == (
        "apt cannot do what is needed (Unable to locate package nosuch): see to it there with `apt-get install`, then run again."
    )


@pytest.mark.parametrize(
    "error",
    [
        "E: Unable to locate package linux-headers-6.1.0-18-amd64",
        "E: Package 'linux-headers-6.8.0-31-generic' has no installation candidate",
        "E: Unable to locate package proxmox-headers-6.8.4-2-pve",
    ],
)
def test_headers_of_a_kernel_that_the_sources_have_no_more(error: str) -> None:
    """Field report B5; there the kernel is old, and to look for its headers by hand would lead nowhere."""
    assert simulation_failed([], [error]) == (
        f"apt cannot do what is needed ({error[3:]}): its package sources do not have the headers of that old kernel any more, so"
        " upgrade it with `apt-get dist-upgrade`, then run again."
    )


def test_a_dependency_that_cannot_be_had() -> None:
    output = [
        "The following packages have unmet dependencies:",
        " nvidia-driver-cuda : Depends: libcuda1 (= 580.95.05-1) but 590.44.01-1 is to be installed",
        "                      Depends: nvidia-smi but it is not going to be installed",
    ]
    sentence = simulation_failed(output, ["E: Unable to correct problems, you have held broken packages."])
    assert "(nvidia-driver-cuda : Depends: libcuda1 (= 580.95.05-1) but 590.44.01-1 is to be installed; Unable to" in sentence
