"""What drives the GPUs of a host, as the host shows it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from roles.gpus.catalog import Flavour

PASSTHROUGH = "gpuquilt.passthrough"
"""The kernel's argument that names what is bound to vfio-pci before any driver is loaded: ADDRESS/VENDOR:DEVICE,…"""
_MODULE = re.compile(r"linux-modules-nvidia-|.*(?<!-no)-dkms\b")
"""How packages begin that bring the kernel module: built by the distribution, or on the host by DKMS."""
_LIBRARIES = re.compile(r"libcuda1|libnvidia-compute|nvidia-(?:utils|smi|driver|headless)")
"""How packages begin whose version is that of the driver's libraries."""
_VERSION = re.compile(r"(?:[0-9]+:)?([0-9]{3}(?:\.[0-9]+)+)")
"""A driver's version at the beginning of that of a package; the versions of helpers beside it are shorter."""


@dataclass(frozen=True)
class NvidiaGpu:
    """What nvidia-smi says of a GPU; None where it says ``N/A``.

    :param memory_mib: MiB in all
    :param used_mib: MiB in use
    :param performance: performance state, 0 (fastest) to 12
    :param load_percent: how busy it is, 0 to 100
    :param width, max_width: lanes
    :param generation, max_generation: PCI Express generation of the link, 1 to 7
    :param display: a monitor or a desktop is on it
    """

    memory_mib: int | None = None
    used_mib: int | None = None
    performance: int | None = None
    load_percent: int | None = None
    width: int | None = None
    max_width: int | None = None
    generation: int | None = None
    max_generation: int | None = None
    display: bool | None = None
    compute_capability: str | None = None


@dataclass(frozen=True)
class Nvidia:
    """NVIDIA's driver on a host.

    :param loaded: version of the module that runs; empty where none does
    :param loaded_flavour: flavour of that module
    :param on_disk: version of the module that the kernel that boots next loads; empty where it has none
    :param on_disk_flavour: likewise its flavour
    :param dkms: whether DKMS has built the module for that kernel; None where DKMS does not know of it
    :param packages: packages of the driver whose files are there, configured or not, name → version
    :param problem: what nvidia-smi complains about, in its own words; empty where it does not
    :param gpus: address → what nvidia-smi says of it
    """

    loaded: str = ""
    loaded_flavour: Flavour | None = None
    on_disk: str = ""
    on_disk_flavour: Flavour | None = None
    dkms: bool | None = None
    packages: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""
    gpus: Mapping[str, NvidiaGpu] = field(default_factory=dict)

    @property
    def module_packages(self) -> tuple[str, ...]:
        """Those of the packages that bring the kernel module."""
        return tuple(name for name in self.packages if brings_module(name))

    @property
    def packaged(self) -> str:
        """Version of the driver whose packages are there, whether or not they are done; empty where none brings a module.

        Modules that Ubuntu builds have the version of their kernel; then that of the libraries is taken.
        """
        if not self.module_packages:
            return ""
        return self._version(name for name in self.module_packages if not name.startswith("linux-modules-")) or self.library

    @property
    def packaged_flavour(self) -> Flavour | None:
        """Likewise its flavour; None where there are packages of both."""
        flavours: set[Flavour] = {"open" if "open" in name.split("-") else "proprietary" for name in self.module_packages}
        return flavours.pop() if len(flavours) == 1 else None

    @property
    def library(self) -> str:
        """Version of the driver's libraries, as their packages have it; empty where no package says it."""
        return self._version(name for name in self.packages if _LIBRARIES.match(name))

    def _version(self, names: Iterable[str]) -> str:
        found = (_VERSION.match(self.packages[name]) for name in names)
        return next((match[1] for match in found if match), "")


@dataclass(frozen=True)
class Drivers:
    """What drives the GPUs of a host, and what would have to accept a new driver.

    :param kernel: release of the running kernel, as ``uname -r`` prints it
    :param next_kernel: release of the kernel that boots next, the newest in /boot; empty where none is there, as in a container
    :param headers: whether the headers of the kernel that boots next are there, so that DKMS can build for it
    :param header_packages: installed metapackages that bring the headers of every new kernel, e.g. linux-headers-amd64
    :param log: what the kernel has said of NVIDIA's driver and of modules that it refused, since it booted
    :param secure_boot: None where the host does not say (no UEFI)
    :param own_key_enrolled: the firmware accepts modules that DKMS signs on this host
    :param reboot_wanted: the host's packages ask for a reboot (/run/reboot-required)
    :param passthrough: what the argument `PASSTHROUGH` of the running kernel names, each as address/vendor:device
    """

    kernel: str = ""
    next_kernel: str = ""
    headers: bool = False
    header_packages: tuple[str, ...] = ()
    log: tuple[str, ...] = ()
    secure_boot: bool | None = None
    own_key_enrolled: bool = False
    reboot_wanted: bool = False
    passthrough: tuple[str, ...] = ()
    nvidia: Nvidia = field(default_factory=Nvidia)

    @property
    def boots(self) -> str:
        """Release of the kernel that boots next; where none is installed, what runs came from elsewhere, and will again."""
        return self.next_kernel or self.kernel

    @property
    def is_removed(self) -> bool:
        """Whether NVIDIA's driver runs and is not installed any more, as after a move to another that was broken off."""
        gone = not self.nvidia.on_disk and not self.nvidia.packaged
        return bool(self.nvidia.loaded) and gone and self.next_kernel == self.kernel != ""


def brings_module(package: str) -> bool:
    """Whether a package of the driver, by its name, brings the kernel module."""
    return bool(_MODULE.match(package))
