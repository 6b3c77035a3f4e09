"""How it stands with NVIDIA's driver on a host: one of a few states, each with what to do next. Pure.

Source of the texts of kernel and nvidia-smi: osapi.c, osinit.c and nv.c of NVIDIA's open kernel modules, kernel/module/signing.c
and drivers/pci/pci.c of Linux.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from roles.gpus.catalog import Catalog, Flavour, Generation, numbers
from roles.gpus.driver import Drivers, Nvidia
from roles.gpus.gpu import Gpu
from roles.gpus.link import Verdict

OURS = " (deploys/prepare.py does that)"
DRIVER = "nvidia"
PASSED_ON = "vfio-pci"

_LOST = re.compile(
    r"The NVIDIA GPU (?P<probed>\S+) \(PCI ID: \S+ installed in this system has fallen off the bus"
    r"|\(PCI:(?P<died>[^)]+)\): 79,"
    r"|GPU (?P<gone>\S+): GPU has fallen off the bus"
    r"|(?P<cold>\S+): Unable to change power state from D3cold to D0, device inaccessible"
    r"|device handle for GPU\w*:? ?(?P<asked>[0-9A-Fa-f:.]+): (?:Unknown Error|GPU is lost)"
)
"""A GPU that answers nothing, as the kernel and nvidia-smi say it."""
_WITHOUT_GSP = re.compile(
    r"The NVIDIA GPU (\S+) \(PCI ID: \S+ installed in this system is not supported by open nvidia\.ko because it does not include"
    r" the required GPU System Processor \(GSP\)"
)
_UNSUPPORTED = re.compile(
    r"The NVIDIA GPU (\S+) \(PCI ID: \S+ installed in this system is not supported by the NVIDIA ([0-9.]*[0-9]) driver release"
)
_REFUSED = re.compile(
    r"Loading of (?:unsigned module|module with [a-z]+ \w+) is rejected|unsigned module loading is restricted"
    r"|Key was rejected by service|Required key not available"
)
_LIBRARY = re.compile(r"NVML library version: ([0-9.]*[0-9])")
_ADDRESS = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}:[0-9a-f]{2})(?:\.[0-7])?")
"""As the kernel, NVIDIA's module and nvidia-smi write it: domain and function may be missing, the domain may be longer."""


class Kind(StrEnum):
    """The state in a few words."""

    UNREACHABLE = "card unreachable"
    NOT_INSTALLED = "not installed"
    WRONG_FLAVOUR = "wrong flavour"
    WRONG_BRANCH = "wrong branch"
    SECURE_BOOT = "Secure Boot refuses it"
    NOT_BUILT = "not built for the kernel that boots next"
    INSTALLED = "installed, not loaded"
    NOUVEAU = "held by nouveau"
    MISMATCH = "library and module differ"
    REBOOT_OWED = "installed, reboot owed"
    SILENT = "loaded, no answer"
    LOADED = "loaded"


@dataclass(frozen=True)
class State:
    """How it stands.

    :param sentence: the thing, why, and what to do next; without the host's name
    :param reboot: a reboot ends it
    """

    kind: Kind
    sentence: str
    reboot: bool = False


def state(drivers: Drivers, gpus: Sequence[Gpu], catalog: Catalog, managed: bool = True) -> State:
    """How it stands with NVIDIA's driver.

    What stands in the way of everything else comes first: with a dead card no driver helps, with the wrong driver no signature,
    without a signature no build, without a build no reboot.

    :param gpus: NVIDIA's GPUs that are to compute on the host: seen, and declared
    :param managed: gpuquilt installs the driver there
    """
    host = _Host(drivers, [gpu for gpu in gpus if gpu.address], gpus, catalog, OURS if managed else "")
    return (
        _unreachable(host)
        or _not_installed(host)
        or _wrong_flavour(host)
        or _wrong_branch(host)
        or _refused(host)
        or _not_built(host)
        or _waiting(host)
        or _held(host)
        or _mismatch(host)
        or _reboot_owed(host)
        or _silent(host)
        or State(Kind.LOADED, f"NVIDIA driver {drivers.nvidia.loaded} is loaded.")
    )


@dataclass(frozen=True)
class _Host:
    """What the state is read from.

    :param seen: the GPUs that are there
    :param gpus: these, and those that are only declared
    :param ours: what is to be said after something that gpuquilt does
    """

    drivers: Drivers
    seen: Sequence[Gpu]
    gpus: Sequence[Gpu]
    catalog: Catalog
    ours: str

    @property
    def nvidia(self) -> Nvidia:
        return self.drivers.nvidia

    @property
    def said(self) -> str:
        """The kernel's log in one line, since NVIDIA breaks its sentences into several."""
        return " ".join(line.removeprefix("NVRM: ") for line in self.drivers.log)

    @property
    def version(self) -> str:
        """Of the driver that the next boot is to load, as far as anything of it is there."""
        return self.nvidia.on_disk or self.nvidia.packaged or self.nvidia.loaded

    @property
    def flavour(self) -> Flavour | None:
        """Likewise."""
        if self.nvidia.on_disk:
            return self.nvidia.on_disk_flavour
        return self.nvidia.packaged_flavour if self.nvidia.packaged else self.nvidia.loaded_flavour

    @property
    def driver(self) -> str:
        return _driver(self.version, self.flavour)

    def generation(self, gpu: Gpu) -> Generation | None:
        return self.catalog.generations.get(gpu.generation or "")


def _unreachable(host: _Host) -> State | None:
    for gpu in host.seen:
        if gpu.link and gpu.link.verdict is Verdict.UNREACHABLE:
            return _dead(gpu, gpu.link.reason)
    # What answers now has come back since it was lost; what sleeps is not asked, and has no complaint.
    if host.nvidia.loaded and not host.nvidia.problem:
        return None
    # The kernel knows more of the reason than nvidia-smi.
    lost = {_slot(address): why for said in (host.nvidia.problem, host.said) for address, why in _lost(said)}
    return next(
        (
            _dead(gpu, lost[_slot(gpu.address)])
            for gpu in host.seen
            if _slot(gpu.address) in lost and gpu.address not in host.nvidia.gpus
        ),
        None,
    )


def _lost(said: str) -> Iterator[tuple[str, str]]:
    """The GPUs that are said to be lost, each with the reason."""
    for found in _LOST.finditer(said):
        address = found["cold"] or found["asked"]
        why = (
            "it does not wake from D3cold"
            if found["cold"]
            else "nvidia-smi has lost it"
            if address
            else "it has fallen off the bus"
        )
        yield address or found["probed"] or found["died"] or found["gone"], why


def _slot(address: str | None) -> str:
    """Domain, bus and device."""
    found = _ADDRESS.fullmatch((address or "").lower())
    return f"{int(found[1] or '0', 16):04x}:{found[2]}" if found else ""


def _dead(gpu: Gpu, why: str) -> State:
    return State(
        Kind.UNREACHABLE,
        f"{gpu.address} is unreachable ({why.rstrip('.')}): no driver can help, so do not install it again; switch the machine"
        " off and on again, its hypervisor too if it is a virtual one, and look at slot and power, or take the card out.",
    )


def _not_installed(host: _Host) -> State | None:
    if host.drivers.is_removed:
        return State(
            Kind.NOT_INSTALLED,
            f"NVIDIA driver {host.nvidia.loaded} is loaded and not installed any more: install one{host.ours}.",
        )
    if host.version:
        return None
    holders = "".join(f", and {gpu.driver} holds {gpu.address}" for gpu in _held_by_others(host))
    return State(Kind.NOT_INSTALLED, f"NVIDIA's driver is not installed{holders}: install it{host.ours}.")


def _wrong_flavour(host: _Host) -> State | None:
    without_gsp = set(map(_slot, _WITHOUT_GSP.findall(host.said))) if host.flavour == "open" else set()
    for gpu in host.gpus:
        generation = host.generation(gpu)
        if _slot(gpu.address) in without_gsp or (generation and not generation.takes(host.flavour)):
            return State(Kind.WRONG_FLAVOUR, _wrong(host, gpu))
    return None


def _wrong(host: _Host, gpu: Gpu) -> str:
    if host.flavour == "open":
        why, other = f"which cannot drive {_name(gpu)}, since that has no GPU System Processor (GSP)", "proprietary"
    else:
        why, other = f"and {_name(gpu)} needs the open one", "open"
    return (
        f"NVIDIA driver {host.version} is installed with the {host.flavour} module, {why}: put the {other} one there{host.ours}."
    )


def _wrong_branch(host: _Host) -> State | None:
    branch = next(iter(numbers(host.version)), 0)
    # What the kernel said of another version holds no more.
    refused = {_slot(address) for address, version in _UNSUPPORTED.findall(host.said) if version == host.version}
    for gpu in host.gpus:
        generation = host.generation(gpu)
        first, last = (generation.first_branch, generation.last_branch) if generation else (None, None)
        if last is not None and branch > last:
            why = f"branch {branch} has dropped {_name(gpu)}, whose last one is {last}"
        elif first is not None and branch < first:
            why = f"branch {branch} is too old for {_name(gpu)}, which needs {first} or newer"
        elif _slot(gpu.address) in refused:
            why = f"it does not support {_name(gpu)}"
        else:
            continue
        return State(Kind.WRONG_BRANCH, f"NVIDIA driver {host.version} is installed, and {why}: install another one{host.ours}.")
    return None


def _refused(host: _Host) -> State | None:
    if host.nvidia.loaded or host.drivers.secure_boot is False:
        return None
    in_vain = host.drivers.secure_boot and not host.drivers.own_key_enrolled and _is_built_here(host)
    # The kernel does not say which module it refused; without a card nobody loads this one.
    if not in_vain and not (host.seen and _REFUSED.search(host.said)):
        return None
    return State(
        Kind.SECURE_BOOT,
        f"Secure Boot refuses the module of NVIDIA driver {host.version}, because the key that it is signed with is not enrolled:"
        " run `mokutil --import` with the key of DKMS (/var/lib/dkms/mok.pub, on Ubuntu /var/lib/shim-signed/mok/MOK.der), reboot"
        " and confirm at the console, or turn Secure Boot off in the firmware.",
    )


def _is_built_here(host: _Host) -> bool:
    """By DKMS; what the distribution builds has its signature."""
    return host.nvidia.dkms is not None or any(not name.startswith("linux-") for name in host.nvidia.module_packages)


def _not_built(host: _Host) -> State | None:
    # A container has no kernel of its own, and is shown the driver of its host.
    known = host.drivers.next_kernel or (host.seen and not host.nvidia.loaded)
    if host.nvidia.on_disk or not known:
        return None
    kernel = host.drivers.boots
    thing = f"NVIDIA driver {host.version} has no module for the kernel that boots next ({kernel})"
    if not _is_built_here(host):
        other = "" if host.nvidia.module_packages else ", and DKMS does not know of it"
        way = (
            f"install the package of its modules{host.ours}"
            if host.nvidia.module_packages
            else "run its installer for that kernel"
        )
        return State(Kind.NOT_BUILT, f"{thing}{other}: {way}.")
    if host.drivers.headers:
        way = f"let DKMS build it{host.ours}, and where that fails, see /var/lib/dkms/nvidia*/*/build/make.log"
        return State(Kind.NOT_BUILT, f"{thing}, though its headers are there: {way}.")
    way = f"install them, and let DKMS build it{host.ours}; where there are none any more, upgrade the kernel"
    return State(Kind.NOT_BUILT, f"{thing}, since its headers are missing: {way}.")


def _waiting(host: _Host) -> State | None:
    if host.seen or host.nvidia.loaded:
        return None
    return State(
        Kind.INSTALLED,
        f"NVIDIA driver {host.driver} is installed and not loaded, since no card is seen: give the machine its card, and start it"
        " again.",
    )


def _held(host: _Host) -> State | None:
    for gpu in _held_by_others(host):
        return State(
            Kind.NOUVEAU, f"{gpu.driver} holds {gpu.address}, and NVIDIA driver {host.version} is installed: reboot.", reboot=True
        )
    return None


def _held_by_others(host: _Host) -> list[Gpu]:
    return [gpu for gpu in host.seen if gpu.driver not in (None, DRIVER, PASSED_ON)]


def _mismatch(host: _Host) -> State | None:
    nvidia = host.nvidia
    if not nvidia.loaded or nvidia.gpus:
        return None
    found = _LIBRARY.search(nvidia.problem)
    library = nvidia.library or (found[1] if found else "")
    if "mismatch" not in nvidia.problem and library in ("", nvidia.loaded):
        return None
    thing = f"NVIDIA's module {nvidia.loaded} is loaded, and its libraries are {library or 'of another version'}"
    if nvidia.library and nvidia.on_disk and nvidia.library != nvidia.on_disk:
        way = f"bring its packages to one version{host.ours}, and reboot"
        return State(Kind.MISMATCH, f"{thing}; the next boot loads {nvidia.on_disk}: {way}.")
    return State(Kind.MISMATCH, f"{thing}, as after an upgrade: reboot, and do not install the driver again.", reboot=True)


def _reboot_owed(host: _Host) -> State | None:
    nvidia = host.nvidia
    if not nvidia.loaded:
        return State(Kind.REBOOT_OWED, f"NVIDIA driver {host.driver} is installed and not loaded: reboot.", reboot=True)
    flavours = {nvidia.loaded_flavour, host.flavour} - {None}
    if nvidia.loaded == host.version and len(flavours) < 2:
        return None
    loaded = _driver(nvidia.loaded, nvidia.loaded_flavour)
    return State(Kind.REBOOT_OWED, f"NVIDIA driver {loaded} is loaded and {host.driver} is installed: reboot.", reboot=True)


def _silent(host: _Host) -> State | None:
    nvidia = host.nvidia
    if not nvidia.problem or all(gpu.address in nvidia.gpus for gpu in host.seen):
        return None
    return State(
        Kind.SILENT,
        f"NVIDIA driver {nvidia.loaded} is loaded, and nvidia-smi says {nvidia.problem!r}: see `dmesg` there for NVIDIA's own"
        " reason (NVRM).",
    )


def _name(gpu: Gpu) -> str:
    return gpu.address or gpu.name


def _driver(version: str, flavour: Flavour | None) -> str:
    return f"{version} ({flavour} module)" if flavour else version
