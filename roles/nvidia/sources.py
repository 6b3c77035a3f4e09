"""NVIDIA's package repository, and which of a distribution's own components a driver needs. Pure."""

from __future__ import annotations

from collections.abc import Collection

from roles.base.apt import SOURCES, Apt, Repository
from roles.nvidia.settings import Settings

NAME = "nvidia"
BASE = "https://developer.download.nvidia.com/compute/cuda/repos"
"""Source: docs.nvidia.com/datacenter/tesla/driver-installation-guide, Debian and Ubuntu, network repositories."""
KEY = "3bf863cc.pub"
"""Likewise; its last digits are those of the fingerprint."""

COMPONENTS = {"debian": ("contrib", "non-free", "non-free-firmware"), "ubuntu": ("restricted",)}
"""Distribution → where it keeps NVIDIA's driver and what belongs to it."""
HELPERS = {"debian": ("contrib",)}
"""Distribution → where it keeps what NVIDIA's own packages need.

Source: docs.nvidia.com/datacenter/tesla/driver-installation-guide, Debian: "Enable the contrib repository".
"""

BACKPORTS = f"{SOURCES}/gpuquilt-nvidia-backports.sources"
BACKPORTED = "contrib"
"""The component of what is taken from there."""
FROM_BACKPORTS = {"trixie": ("nvidia-open-kernel-dkms",)}
"""Release → packages that its backports have in the same version of the driver, and that can be built for its kernels there.

Debian 13's own open module, 550.163.01-2, calls pci_resize_resource() as older kernels had it, and cannot be built for any that
Debian 13 still has, 6.12.107 to 6.12.118; that of its backports is 550.163.01-4~bpo13+1. Found by building, 2026-12-01.
"""


def repository(settings: Settings, system: str) -> Repository:
    """The repository for a release of a distribution.

    :param system: e.g. debian12 or ubuntu24.04
    """
    uri = settings.repository or f"{BASE}/{system.replace('.', '')}/x86_64"
    return Repository(
        name=NAME,
        uri=uri,
        suites=("/",),
        components=(),
        key=settings.repository_key or f"{uri}/{KEY}",
        fingerprint=settings.repository_fingerprint,
    )


def components(origin: str, distribution: str) -> tuple[str, ...]:
    """The distribution's own components that packages need.

    :param origin: where they come from: ``distribution`` or ``nvidia``
    :param distribution: ``ID`` of os-release, e.g. debian
    """
    return (COMPONENTS if origin == "distribution" else HELPERS).get(distribution, ())


def from_backports(packages: Collection[str], releases: Collection[str] = FROM_BACKPORTS.keys()) -> list[str]:
    """Those of the packages that come from Debian's backports.

    :param releases: codenames of releases; default: all for which something does
    """
    return sorted({name for release in releases for name in FROM_BACKPORTS.get(release, ()) if name in packages})


def backports_text(packages: Collection[str], seen: Apt) -> str:
    """The file that makes Debian's backports a source for these packages; empty where that is not needed, or they are one.

    apt takes nothing from there of its own accord; address and options are those of the archive itself.
    """
    suite = f"{seen.codename}-backports"
    others = [source for source in seen.sources if source.binary and source.file != BACKPORTS]
    there = [source for source in others if suite in source.suites]
    own = [source for source in others if seen.codename in source.suites and "main" in source.components]
    if not from_backports(packages, [seen.codename]) or any(BACKPORTED in source.components for source in there):
        return ""
    for source in [*there, *own]:
        options = "".join(f"{name.title()}: {value}\n" for name, value in source.options.items())
        return f"Types: deb\nURIs: {source.uri}\nSuites: {suite}\nComponents: {BACKPORTED}\n{options}"
    return ""
