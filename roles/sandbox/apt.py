"""Where this computer gets its Debian packages from, so that the machines can get theirs from the same place."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass

ALIASES = frozenset({"stable", "oldstable", "testing"})
PASSED_ON = ("Acquire::http", "Acquire::https", "Acquire::Check-", "Acquire::Retries", "Acquire::ForceIPv4")
"""What of apt's configuration is about reaching a mirror, and so holds for the machines too."""


@dataclass(frozen=True)
class Source:
    """One binary package source: an address with its suites and components."""

    uri: str
    suites: tuple[str, ...]
    components: tuple[str, ...]


@dataclass(frozen=True)
class Mirrors:
    """The addresses of Debian's archives: packages, and security updates if this computer has them."""

    main: str
    security: str | None = None


def parse_one_line(text: str) -> list[Source]:
    """``/etc/apt/sources.list`` and ``*.list``: ``deb [options] URI SUITE COMPONENT...``; other lines are left out."""
    sources = []
    for line in text.splitlines():
        words = re.sub(r"^\s*deb\s+\[[^]]*]", "deb", line.partition("#")[0]).split()
        if len(words) >= 4 and words[0] == "deb":
            sources.append(Source(uri=_address(words[1]), suites=(words[2],), components=tuple(words[3:])))
    return sources


def parse_deb822(text: str) -> list[Source]:
    """``*.sources``: stanzas of ``Field: values``; disabled ones and those without binary packages are left out."""
    sources = []
    for fields in _stanzas(text.splitlines()):
        disabled = fields.get("enabled", "yes").lower() in ("no", "false", "0", "off", "without", "disable")
        if disabled or "deb" not in fields.get("types", "").split():
            continue
        for uri in fields.get("uris", "").split():
            suites, components = fields.get("suites", "").split(), fields.get("components", "").split()
            sources.append(Source(uri=_address(uri), suites=tuple(suites), components=tuple(components)))
    return sources


def _stanzas(lines: Iterable[str]) -> Iterator[dict[str, str]]:
    fields: dict[str, str] = {}
    name = ""
    for line in [*lines, ""]:
        if line.startswith("#"):
            continue
        if not line.strip():
            if fields:
                yield fields
            fields, name = {}, ""
        elif line[0] in " \t":
            if name:
                fields[name] += " " + line.strip()
        else:
            name, _, value = line.partition(":")
            name = name.strip().lower()
            fields[name] = value.strip()


def _address(uri: str) -> str:
    return uri.rstrip("/")


def find_mirrors(sources: Sequence[Source], codename: str) -> Mirrors | None:
    """The mirror that serves this computer's own release.

    :param sources: all package sources of this computer
    :param codename: its release, e.g. ``bookworm``
    :return: None when no source is one that another machine could reach (a CD, a folder)
    """
    reachable = [source for source in sources if re.match(r"https?://", source.uri) and "main" in source.components]
    # Other vendors call their only suite "stable": a source that names the release comes first.
    for releases in ({codename}, ALIASES):
        main = _first_with(reachable, releases)
        if main:
            return Mirrors(main, _first_with(reachable, {f"{release}-security" for release in releases}))
    return None


def _first_with(sources: Iterable[Source], suites: Set[str]) -> str | None:
    return next((source.uri for source in sources if suites & set(source.suites)), None)


def guest_sources(mirrors: Mirrors, suite: str) -> str:
    """The ``debian.sources`` of a machine, in deb822 format."""
    stanzas = [(mirrors.main, f"{suite} {suite}-updates")]
    if mirrors.security:
        stanzas.append((mirrors.security, f"{suite}-security"))
    return "\n".join(
        f"Types: deb\nURIs: {uri}\nSuites: {suites}\nComponents: main\n"
        "Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n"
        for uri, suites in stanzas
    )


def guest_options(dump: Iterable[str]) -> list[str]:
    """Of the lines of ``apt-config dump``, those that say how a mirror is reached."""
    return [line for line in dump if line.startswith(PASSED_ON) and not line.endswith(' "";')]


def probe_address(mirrors: Mirrors, options: Iterable[str]) -> tuple[str, int]:
    """Host and port that a machine must be able to connect to before apt can work in it: the mirror, or the proxy before it."""
    scheme = mirrors.main.partition("://")[0]
    proxies = dict(re.findall(r'^Acquire::(https?)::Proxy "(https?://[^"]+)";$', "\n".join(options), re.MULTILINE))
    uri = proxies.get(scheme) or proxies.get("http") or mirrors.main
    found = re.match(r"(https?)://(?:[^/@]*@)?(\[[^]]+]|[^/:]+)(?::(\d+))?", uri)
    assert found, uri
    return found[2].strip("[]"), int(found[3] or (443 if found[1] == "https" else 80))
