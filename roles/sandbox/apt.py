"""Where this computer gets its Debian packages from, so that the machines can get theirs from the same place."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass

from roles.base.apt import ALIASES, Source

PASSED_ON = ("Acquire::http", "Acquire::https", "Acquire::Check-", "Acquire::Retries", "Acquire::ForceIPv4")
"""What of apt's configuration is about reaching a mirror, and so holds for the machines too."""


@dataclass(frozen=True)
class Mirrors:
    """The addresses of Debian's archives: packages, and security updates if this computer has them."""

    main: str
    security: str | None = None


def find_mirrors(sources: Sequence[Source], codename: str) -> Mirrors | None:
    """The mirror that serves this computer's own release.

    :param sources: all package sources of this computer
    :param codename: its release, e.g. ``bookworm``
    :return: None when no source is one that another machine could reach (a CD, a folder)
    """
    reachable = [
        source for source in sources if source.binary and re.match(r"https?://", source.uri) and "main" in source.components
    ]
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
