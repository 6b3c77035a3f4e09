"""NVIDIA's package repository, and which of a distribution's own components a driver needs. Pure."""

from __future__ import annotations

from roles.base.apt import Repository
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
