"""What drives the GPUs of a host, as the host shows it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from roles.gpus.catalog import Flavour

PASSTHROUGH = "gpuquilt.passthrough"
"""The kernel's argument that names what is bound to vfio-pci before any driver is loaded: ADDRESS/VENDOR:DEVICE,…"""


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
    :param on_disk: version of the module that the next boot of this kernel loads; empty where there is none
    :param on_disk_flavour: likewise its flavour
    :param packages: installed packages of the driver, name → version
    :param problem: what nvidia-smi complains about, in its own words; empty where it does not
    :param gpus: address → what nvidia-smi says of it
    """

    loaded: str = ""
    loaded_flavour: Flavour | None = None
    on_disk: str = ""
    on_disk_flavour: Flavour | None = None
    packages: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""
    gpus: Mapping[str, NvidiaGpu] = field(default_factory=dict)


@dataclass(frozen=True)
class Drivers:
    """What drives the GPUs of a host, and what would have to accept a new driver.

    :param kernel: release of the running kernel, as ``uname -r`` prints it
    :param secure_boot: None where the host does not say (no UEFI)
    :param own_key_enrolled: the firmware accepts modules that DKMS signs on this host
    :param reboot_wanted: the host's packages ask for a reboot (/run/reboot-required)
    :param passthrough: what the argument `PASSTHROUGH` of the running kernel names, each as address/vendor:device
    """

    kernel: str = ""
    secure_boot: bool | None = None
    own_key_enrolled: bool = False
    reboot_wanted: bool = False
    passthrough: tuple[str, ...] = ()
    nvidia: Nvidia = field(default_factory=Nvidia)
