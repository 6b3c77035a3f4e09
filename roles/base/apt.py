"""What we add to a host's package sources, and what apt would do with them. Pure."""

from __future__ import annotations

from dataclasses import dataclass

SOURCES = "/etc/apt/sources.list.d"
KEYS = "/etc/apt/keyrings"
PREFERENCES = "/etc/apt/preferences.d"


@dataclass(frozen=True)
class Repository:
    """A package repository that a role adds to a host, as one deb822 file with a key of its own.

    :param name: names its files: ``gpuquilt-NAME.sources`` and ``gpuquilt-NAME.asc``
    :param uri: http, https or file, without a slash at its end
    :param suites: e.g. ``bookworm``; ``/`` for a repository without suites, which then has no components
    :param components: e.g. ``stable``
    :param key: where its signing key is fetched from: an http, https or file URL
    :param fingerprint: of that key, 40 hexadecimal digits; a key with another one is refused
    """

    name: str
    uri: str
    suites: tuple[str, ...]
    components: tuple[str, ...]
    key: str
    fingerprint: str

    @property
    def file(self) -> str:
        return f"{SOURCES}/gpuquilt-{self.name}.sources"

    @property
    def key_file(self) -> str:
        return f"{KEYS}/gpuquilt-{self.name}.asc"


@dataclass(frozen=True)
class Change:
    """What a simulated installation would do with one package.

    :param action: ``install`` (or upgrade, or downgrade) or ``remove``
    :param version: that would be there afterwards; of one that is removed, the one that is there
    :param before: the version that is there; empty where there is none
    :param origin: where it would come from, in apt's words
    """

    action: str
    package: str
    version: str
    before: str = ""
    origin: str = ""
