"""NVIDIA's driver on a host: which stays, or which is to come from where. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from fnmatch import fnmatchcase
from typing import Literal

from roles.cluster.backend import title, titles
from roles.cluster.passthrough import VFIO
from roles.cluster.remarks import Remarks
from roles.cluster.settings import Settings
from roles.gpus.catalog import Branch, Catalog, Distribution, DriverOffer, Flavour, Generation, OpenModule, Toolkit, numbers
from roles.gpus.driver import Drivers
from roles.gpus.gpu import Gpu
from roles.gpus.state import Kind, State, state

OPEN_BY_DEFAULT = 560
"""NVIDIA's own installers choose the open module from this branch on.

Source: docs.nvidia.com/datacenter/tesla/driver-installation-guide/kernel-modules.html.
"""
OWN_KEYS = {
    "debian": (
        "/var/lib/dkms/mok.pub",
        "openssl req -new -x509 -nodes -days 36500 -subj '/CN=DKMS' -newkey rsa:2048 -keyout /var/lib/dkms/mok.key -outform DER"
        " -out /var/lib/dkms/mok.pub",
    ),
    "ubuntu": ("/var/lib/shim-signed/mok/MOK.der", "update-secureboot-policy --new-key"),
}
"""Distribution → the key that DKMS signs modules with there, and what makes it before DKMS has built its first module.

Source: /usr/sbin/dkms of their packages, which does the same.
"""
OVERRIDES = {"driver": "branch", "driver_source": "source", "driver_flavour": "flavour"}
"""Setting → the part of a `Driver` that it decides."""
SOURCES = {"distribution": "the distribution's packages", "nvidia": "NVIDIA's repository"}


@dataclass(frozen=True)
class Driver:
    """NVIDIA's driver, as it is or as it is to be.

    :param version: e.g. 580.173.02; of one that is to come, the newest that the catalog knows; empty where there is none
    :param branch: the first number of the version
    :param flavour: of the kernel module; None where it is not known
    :param source: ``loaded`` (it is there and stays), ``distribution``, ``nvidia`` (where it is to come from), or ``unmanaged``
    :param packages: what is to be installed
    """

    version: str
    branch: int
    flavour: Flavour | None
    source: Literal["loaded", "distribution", "nvidia", "unmanaged"]
    packages: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.version} ({self.flavour} module)" if self.flavour else self.version


@dataclass(frozen=True)
class Ground:
    """What the choice of a driver rests on.

    :param gpus: NVIDIA's GPUs that compute on the host
    :param cuda: they compute with CUDA, so that a toolkit must fit the driver
    :param system: distribution and release, e.g. debian13
    """

    gpus: Sequence[Gpu]
    cuda: bool
    drivers: Drivers
    system: str
    today: date
    catalog: Catalog

    @property
    def distribution(self) -> Distribution | None:
        return self.catalog.distributions.get(self.system)

    def generation(self, gpu: Gpu) -> Generation:
        return self.catalog.generations[gpu.generation or ""]

    @property
    def state(self) -> State:
        return state(self.drivers, self.gpus, self.catalog)


def present(drivers: Drivers) -> Driver | None:
    """The driver that is there: the one that runs, the one that the next boot loads, or one that is not installed to the end."""
    return _loaded(drivers) or _on_disk(drivers) or _packaged(drivers)


def plan_driver(ground: Ground, settings: Settings, remarks: Remarks) -> Driver | None:
    """The driver that the host is to have; None where there cannot be one, which is refused."""
    now = present(ground.drivers)
    if (obstacle := _conflict(ground) or _unreachable(ground)) is not None:
        remarks.refusals.append(obstacle)
        return None
    choose = _unmanaged if settings.driver == "unmanaged" else _managed
    wanted = choose(ground, now, settings, remarks)
    if wanted:
        _say_overrides(ground, settings, wanted, remarks)
        _say_age(ground, settings, wanted, remarks)
    return wanted


def unfit(ground: Ground, branch: int, flavour: Flavour | None) -> str:
    """Why a driver does not drive all GPUs, in words; empty where it does."""
    for gpu in ground.gpus:
        generation = ground.generation(gpu)
        if generation.last_branch is not None and branch > generation.last_branch:
            return f"branch {branch} has dropped {title(gpu)}, whose last one is {generation.last_branch}"
        if generation.first_branch is not None and branch < generation.first_branch:
            return f"branch {branch} is too old for {title(gpu)}, which needs {generation.first_branch} or newer"
        if not generation.takes(flavour):
            return f"the open module cannot drive {title(gpu)}" if flavour == "open" else f"{title(gpu)} needs the open module"
    return ""


def toolkits_for(ground: Ground, version: str) -> Mapping[str, Toolkit]:
    """The toolkits that compile for all GPUs and are not newer than a driver."""
    capabilities = {gpu.compute_capability for gpu in ground.gpus}
    return {
        name: toolkit
        for name, toolkit in ground.catalog.toolkits.items()
        if numbers(toolkit.driver) <= numbers(version) and capabilities <= set(toolkit.capabilities)
    }


def _loaded(drivers: Drivers) -> Driver | None:
    return _there(drivers.nvidia.loaded, drivers.nvidia.loaded_flavour)


def _on_disk(drivers: Drivers) -> Driver | None:
    return _there(drivers.nvidia.on_disk, drivers.nvidia.on_disk_flavour)


def _packaged(drivers: Drivers) -> Driver | None:
    """What a run that was broken off has left, or a kernel that came later than the driver."""
    return _there(drivers.nvidia.packaged, drivers.nvidia.packaged_flavour)


def _installed(drivers: Drivers) -> Driver | None:
    """The driver that the next boot is to load, whether or not it is done."""
    return _on_disk(drivers) or _packaged(drivers) or (None if drivers.is_removed else _loaded(drivers))


def _there(version: str, flavour: Flavour | None) -> Driver | None:
    return Driver(version, numbers(version)[0], flavour, "loaded") if numbers(version) else None


def _conflict(ground: Ground) -> str | None:
    """One kernel has one NVIDIA module, and no branch and flavour of it may drive all of the GPUs."""
    for one in ground.gpus:
        for other in ground.gpus:
            old, new = ground.generation(one), ground.generation(other)
            flavours = old.open_module == OpenModule.IMPOSSIBLE and new.open_module == OpenModule.REQUIRED
            if flavours or (old.last_branch or new.first_branch or 0) < (new.first_branch or 0):
                return (
                    f"{title(one)} and {title(other)} cannot share one kernel: {old.title} needs the proprietary module, of"
                    f" branch {old.last_branch} or older, and {new.title} the open one: pass one of them through to a virtual"
                    " machine (`passthrough`), or put it into another host."
                )
    return None


def _unreachable(ground: Ground) -> str | None:
    found = ground.state
    return found.sentence if found.kind is Kind.UNREACHABLE else None


def _unmanaged(ground: Ground, now: Driver | None, settings: Settings, remarks: Remarks) -> Driver | None:
    if now is None:
        if settings.cuda_toolkit is None and ground.cuda:
            remarks.refusals.append(
                "driver = 'unmanaged' and no NVIDIA driver is there, so no CUDA toolkit can be chosen: install a driver, set"
                " `cuda_toolkit`, or leave `driver` out."
            )
            return None
        return Driver("", 0, None, "unmanaged")
    reason = unfit(ground, now.branch, now.flavour)
    installed = _installed(ground.drivers) or now
    broken = unfit(ground, installed.branch, installed.flavour)
    if reason and broken:
        remarks.refusals.append(f"driver = 'unmanaged' and {reason}: install another driver, or leave `driver` out.")
        return None
    if broken:
        remarks.warnings.append(
            f"driver = 'unmanaged' and the next boot loads NVIDIA driver {installed}, but {broken}: install another one before"
            " you reboot."
        )
    elif rejected := _rejected_at_boot(ground):
        remarks.refusals.append(rejected)
        return None
    else:
        _say_reboot(ground, remarks)
        _say_state(ground, False, remarks)
    return replace(now if broken else installed, source="unmanaged")


def _managed(ground: Ground, now: Driver | None, settings: Settings, remarks: Remarks) -> Driver | None:
    # Where it is not the one that runs, the libraries are new already, and nothing computes before the reboot.
    installed = _installed(ground.drivers)
    why = _why_it_goes(ground, installed, settings) if installed else ""
    if installed and not why:
        if rejected := _rejected_at_boot(ground):
            remarks.refusals.append(rejected)
            return None
        return _completed(ground, installed, remarks)
    offer = _offer(ground, settings, remarks)
    if offer is None:
        return None
    flavour = _flavour(ground, offer.branch, settings)
    names = _packages(ground, offer.packages[flavour])
    wanted = Driver(offer.version, offer.branch, flavour, offer.origin, names)
    if installed is not None:
        remarks.steps.append(f"remove NVIDIA driver {installed}, because {why}")
    if now is not None and (ground.drivers.nvidia.loaded or ground.drivers.nvidia.on_disk):
        remarks.reboots.append(f"NVIDIA driver {now} gives way to {wanted}")
    remarks.steps.append(f"install NVIDIA driver {wanted} from {SOURCES[offer.origin]}: {', '.join(names)}")
    remarks.reboots.extend(_held(ground))
    return wanted


def _completed(ground: Ground, there: Driver, remarks: Remarks) -> Driver:
    """A driver that stays, with the packages that it is made of, and what is still to be done for it."""
    _say_reboot(ground, remarks)
    packages = _packages_of(ground, there)
    if missing := [name for name in packages if not _is_installed(ground, name)]:
        remarks.steps.append(f"complete NVIDIA driver {there}: install {', '.join(missing)}")
    _say_state(ground, True, remarks)
    return replace(there, packages=packages)


def _packages_of(ground: Ground, there: Driver) -> tuple[str, ...]:
    """The packages of the catalog that a driver comes from; none where it came another way."""
    nvidia = ground.drivers.nvidia
    for offer in ground.distribution.drivers if ground.distribution else ():
        for flavour, names in offer.packages.items():
            fits = offer.branch == there.branch and {there.flavour, nvidia.packaged_flavour} <= {flavour, None}
            if fits and any(_is_of(package, names) for package in nvidia.module_packages):
                return _without_pinning(ground, _packages(ground, names))
    return ()


def _without_pinning(ground: Ground, names: Sequence[str]) -> tuple[str, ...]:
    """The packages of a driver, without NVIDIA's pins if it is done without them.

    It is then Ubuntu's, of which NVIDIA's driver has the names and Ubuntu no such package; or somebody has put it there so.
    """
    parts = [name for name in names if "-pinning-" not in name and "-headers-" not in name]
    done = bool(ground.drivers.nvidia.on_disk) and all(_is_installed(ground, name) for name in parts)
    return tuple(name for name in names if not done or "-pinning-" not in name or _is_installed(ground, name))


def _packages(ground: Ground, names: Sequence[str]) -> tuple[str, ...]:
    """The names of packages for the kernel that boots next.

    Their metapackage brings headers of the newest kernel, which may not be the one that is there; DKMS builds with those alone.
    """
    assert ground.distribution
    release = ground.drivers.next_kernel
    found = ground.distribution.packages_for(names, release)
    if not release or ground.drivers.headers or not any("headers-{kernel}" in name for name in names):
        return found
    return (f"{'proxmox' if release.endswith('-pve') else 'linux'}-headers-{release}", *found)


def _is_of(package: str, names: Sequence[str]) -> bool:
    """Whether a package is one of these, whatever kernel it is for."""
    return any(fnmatchcase(package, name.format(kernel="*")) for name in names)


def _is_installed(ground: Ground, name: str) -> bool:
    return name in ground.drivers.nvidia.packages or name in ground.drivers.header_packages


def _say_state(ground: Ground, managed: bool, remarks: Remarks) -> None:
    """What no reboot ends."""
    found = state(ground.drivers, ground.gpus, ground.catalog, managed)
    built_here = ground.drivers.nvidia.dkms is not None or bool(ground.drivers.nvidia.module_packages)
    if managed and built_here and found.kind is Kind.NOT_BUILT:
        version = _installed(ground.drivers)
        remarks.steps.append(
            f"have the module of NVIDIA driver {version} built for the kernel that boots next, {ground.drivers.boots}"
        )
    elif found.kind in (Kind.NOT_BUILT, Kind.WRONG_FLAVOUR, Kind.WRONG_BRANCH, Kind.MISMATCH) and not found.reboot:
        remarks.warnings.append(found.sentence)


def _why_it_goes(ground: Ground, there: Driver, settings: Settings) -> str:
    """Why a driver that is there cannot stay; empty where it can."""
    if isinstance(settings.driver, int) and settings.driver != there.branch:
        return f"driver = {settings.driver} is wanted"
    if settings.driver_flavour != "auto" and there.flavour not in (None, settings.driver_flavour):
        return f"driver_flavour = {settings.driver_flavour!r} is wanted"
    reason = unfit(ground, there.branch, there.flavour)
    if not reason and ground.cuda and not toolkits_for(ground, there.version):
        reason = f"no CUDA toolkit for {titles(ground.gpus)} is old enough for it"
    return reason


def _offer(ground: Ground, settings: Settings, remarks: Remarks) -> DriverOffer | None:
    """The best driver that can be installed here; the distribution's own where it is as good as NVIDIA's.

    The distribution's packages go through its own tests and updates, Ubuntu's modules are signed for Secure Boot, and no other
    repository with packages of the same names has to be held back.
    """
    every = ground.distribution.drivers if ground.distribution else ()
    fitting = [offer for offer in every if _suits(ground, offer, settings)]
    if not fitting:
        remarks.refusals.append(_none_fits(ground, every, settings))
        return None
    accepted = [offer for offer in fitting if offer.signed or not _signs_in_vain(ground)]
    if not accepted:
        best = max(fitting, key=lambda offer: _rank(ground, offer))
        remarks.refusals.append(_rejected(ground, str(best.branch)))
        return None
    return max(accepted, key=lambda offer: _rank(ground, offer))


def _signs_in_vain(ground: Ground) -> bool:
    """Whether the kernel refuses modules that DKMS signs on this host."""
    return bool(ground.drivers.secure_boot) and not ground.drivers.own_key_enrolled


def _rejected(ground: Ground, driver: str) -> str:
    """Why Secure Boot stops a driver that DKMS builds, and the way out.

    :param driver: its version or branch
    """
    key, make = next((found for name, found in OWN_KEYS.items() if ground.system.startswith(name)), OWN_KEYS["debian"])
    return (
        f"Secure Boot is on and would refuse the module of NVIDIA driver {driver}, which DKMS signs with a key of this host"
        f" ({key}) that is not enrolled: install dkms and mokutil, make the key if it is not there (`{make}`), run `mokutil"
        f" --import {key}`, reboot and confirm at the console, or turn Secure Boot off in the firmware."
    )


def _suits(ground: Ground, offer: DriverOffer, settings: Settings) -> bool:
    flavour = _flavour(ground, offer.branch, settings)
    return (
        settings.driver in ("auto", offer.branch)
        and settings.driver_source in ("auto", offer.origin)
        and flavour in offer.packages
        and not unfit(ground, offer.branch, flavour)
        and (not ground.cuda or bool(toolkits_for(ground, offer.version)))
    )


def _rank(ground: Ground, offer: DriverOffer) -> tuple[int, int, int]:
    """Long-term branches by age, the newest first; without one, the distribution's own before NVIDIA's."""
    branch = ground.catalog.branches.get(offer.branch)
    own = int(offer.origin == "distribution")
    if branch is not None and branch.support == "long-term" and not _is_over(branch, ground.today):
        return 1, offer.branch, own
    return 0, own, offer.branch


def _is_over(branch: Branch, today: date) -> bool:
    return branch.end_of_life is not None and branch.end_of_life < today


def _flavour(ground: Ground, branch: int, settings: Settings) -> Flavour:
    if settings.driver_flavour != "auto":
        return settings.driver_flavour
    needs = {ground.generation(gpu).open_module for gpu in ground.gpus}
    known = ground.catalog.branches.get(branch)
    if OpenModule.IMPOSSIBLE in needs:
        return "proprietary"
    if OpenModule.REQUIRED in needs or branch >= OPEN_BY_DEFAULT or (known is not None and known.open_only):
        return "open"
    return "proprietary"


def _none_fits(ground: Ground, offers: Sequence[DriverOffer], settings: Settings) -> str:
    """Why no driver can be installed, and the way out."""
    where = ground.distribution.title if ground.distribution else ground.system
    has = ", ".join(f"{SOURCES[offer.origin]} {offer.branch}" for offer in offers) or "nothing that the catalog knows"
    if isinstance(settings.driver, int):
        flavour = _flavour(ground, settings.driver, settings)
        if reason := unfit(ground, settings.driver, flavour):
            return f"driver = {settings.driver} cannot be: {reason}: correct `driver`, or leave it out."
        return f"driver = {settings.driver} is not to be had for {where} (there are: {has}): choose one, or leave it out."
    oldest = max(ground.generation(gpu).first_branch or 0 for gpu in ground.gpus)
    if reason := unfit(ground, oldest, _flavour(ground, oldest, settings)):
        return f"driver_flavour = {settings.driver_flavour!r} cannot be: {reason}: leave it out."
    newest = min((last for gpu in ground.gpus if (last := ground.generation(gpu).last_branch)), default=None)
    needs = f"branch {newest} or older" if newest else f"branch {oldest} or newer" if oldest else "another version"
    ways = ["install one yourself, which then stays", "use another release of the distribution"]
    if settings.driver_source != "auto":
        ways.insert(0, "leave `driver_source` out")
    return f"{titles(ground.gpus)} needs NVIDIA's driver of {needs}, and for {where} there is {has}: {', or '.join(ways)}."


def _held(ground: Ground) -> list[str]:
    """Who holds a GPU that NVIDIA's driver is to have."""
    return [
        f"{gpu.driver} holds {gpu.address}"
        for gpu in ground.gpus
        if gpu.driver is not None and gpu.driver not in ("nvidia", VFIO)
    ]


def _rejected_at_boot(ground: Ground) -> str:
    """Why a driver that is installed and not loaded is not loaded by a reboot either; empty where it is, as far as is known.

    Of a driver that comes by packages, what the kernel's log says of refused modules is left to the verification: it names none
    of them, and may have been there before the driver.
    """
    nvidia = ground.drivers.nvidia
    if not nvidia.module_packages:
        return ground.state.sentence if ground.state.kind is Kind.SECURE_BOOT else ""
    built = any(not name.startswith("linux-") for name in nvidia.module_packages)
    in_vain = built and not nvidia.loaded and _signs_in_vain(ground)
    return _rejected(ground, nvidia.on_disk or nvidia.packaged) if in_vain else ""


def _say_reboot(ground: Ground, remarks: Remarks) -> None:
    """Why a driver that is installed well does not work before the next boot; it is not to be installed again for that."""
    loaded, installed, nvidia = _loaded(ground.drivers), _installed(ground.drivers), ground.drivers.nvidia
    if not ground.state.reboot:
        return
    if held := _held(ground):
        remarks.reboots += [f"{holder}, and NVIDIA driver {installed} is installed" for holder in held]
    elif loaded is None:
        remarks.reboots.append(f"NVIDIA driver {installed} is installed and not loaded")
    elif installed and _differ(loaded, installed):
        remarks.reboots.append(f"NVIDIA driver {loaded} is loaded and {installed} is installed")
    elif nvidia.problem:
        remarks.reboots.append(f"nvidia-smi says {nvidia.problem!r}")
    else:
        remarks.reboots.append(f"NVIDIA's module {loaded.version} is loaded and its libraries are {nvidia.library}")


def _differ(one: Driver, other: Driver) -> bool:
    flavours = {one.flavour, other.flavour} - {None}
    return one.version != other.version or len(flavours) > 1


def _say_overrides(ground: Ground, settings: Settings, wanted: Driver, remarks: Remarks) -> None:
    """Which settings decided, and what would have been chosen without them."""
    given = {
        key: word
        for key, word in OVERRIDES.items()
        # Source and flavour decide nothing where what is there stays, or is left alone.
        if getattr(settings, key) != "auto" and (key == "driver" or getattr(settings, key) == getattr(wanted, word))
    }
    if given:
        automatic = _managed(ground, present(ground.drivers), _automatic(settings), Remarks())
        for key, word in given.items():
            remarks.override(key, getattr(settings, key), getattr(automatic, word, None))


def _automatic(settings: Settings) -> Settings:
    return settings.model_copy(update=dict.fromkeys(OVERRIDES, "auto"))


def _say_age(ground: Ground, settings: Settings, driver: Driver, remarks: Remarks) -> None:
    """NVIDIA does not maintain it any more."""
    branch = ground.catalog.branches.get(driver.branch)
    offers = ground.distribution.drivers if ground.distribution else ()
    if branch is not None and _is_over(branch, ground.today):
        why = f"branch {driver.branch} is past its end of life ({branch.end_of_life})"
    elif any(not offer.supported and offer.branch == driver.branch for offer in offers):
        why = f"NVIDIA does not maintain the branch {driver.branch} that {SOURCES['distribution']} have"
    else:
        return
    better = [offer for offer in offers if _is_maintained(ground, offer) and _suits(ground, offer, _automatic(settings))]
    newest = max(better, key=lambda offer: _rank(ground, offer), default=None)
    way = (
        f"set `driver = {newest.branch}` to move to a branch that is maintained"
        if newest
        else "no source has a better one for it"
    )
    remarks.warnings.append(f"NVIDIA driver {driver.version}: {why}: {way}.")


def _is_maintained(ground: Ground, offer: DriverOffer) -> bool:
    branch = ground.catalog.branches.get(offer.branch)
    return offer.supported and branch is not None and not _is_over(branch, ground.today)
