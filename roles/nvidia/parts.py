"""Which packages are parts of NVIDIA's driver, of which branch, and what speaks against an installation. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from roles.base.apt import Change
from roles.cluster.backend import title
from roles.cluster.driver import Driver
from roles.gpus.catalog import Catalog, Flavour
from roles.gpus.gpu import Gpu

NAMES = ("*nvidia*", "cuda-drivers*", "libcuda1", "libcudadebugger1", "libnvcuvid1", "libnvoptix1", "libxnvctrl*")
"""How the parts of the driver are called by Debian, Ubuntu and NVIDIA, and other things beside them: a part has the driver's
version, a whole number of three digits and a dot, which the others do not have (nvidia-support 20240109, nvidia-container-toolkit
1.17, libnvidia-egl-wayland1 1:1.1.18, libnvidia-ml-dev 12.4).

Source: apt-cache dumpavail of Debian 12 and 13, main to non-free-firmware, 2026-11-30.
"""

TOOLS = ("nvidia-modprobe", "nvidia-persistenced", "nvidia-settings", "nvidia-xconfig", "libxnvctrl0", "libxnvctrl-dev")
"""Helpers that a distribution has in the version of some other branch, and that serve every one.

Source: apt-cache madison, 2026-11-30: Debian 13 has nvidia-modprobe 570.133 beside the driver 550.163.
"""

INSTALLER = "/usr/bin/nvidia-uninstall"
"""What NVIDIA's own installer, a .run file, leaves to take the driver away again; no package has it."""

_PINNING = "nvidia-driver-pinning-"
_BRANCH = re.compile(r"(?:[0-9]+:)?([0-9]{3})\.[0-9]")
_BRANCH_IN_NAME = re.compile(r"(?:nvidia|cuda-drivers)[a-z-]*-([0-9]{3})(?:xx)?(?:-|$)")
_NAME = re.compile(r".*nvidia.*|cuda-drivers.*|libcuda1|libcudadebugger1|libnvcuvid1|libnvoptix1|libxnvctrl.*")
_MODULE = re.compile(r"(?!.*-no-dkms).*-dkms|linux-modules-nvidia-|.*-kernel-source|.*-kernel-support")


def origin(driver: Driver) -> str:
    """``nvidia`` or ``distribution``, where its packages come from; empty where it has none.

    Of a driver that is there already this is told by the package that NVIDIA's repository alone has, and that each of the
    catalog's offers from there begins with.
    """
    if driver.source in ("distribution", "nvidia"):
        return driver.source
    if not driver.packages:
        return ""
    return "nvidia" if any(name.startswith(_PINNING) for name in driver.packages) else "distribution"


def branch_of(package: str, version: str) -> int | None:
    """The branch that a package is a part of; None where it is no part of the driver.

    Ubuntu's modules have the version of their kernel, and NVIDIA's pins one of their own: there the name tells.
    """
    if not _NAME.fullmatch(package.partition(":")[0]):
        return None
    found = _BRANCH.match(version) or _BRANCH_IN_NAME.search(package)
    return int(found[1]) if found else None


def flavour_of(package: str) -> Flavour | None:
    """The flavour of the kernel module that a part of the driver brings; None where it brings none."""
    if not _MODULE.match(package):
        return None
    return "open" if "open" in package.split("-") else "proprietary"


def leftovers(installed: Mapping[str, str], driver: Driver) -> list[str]:
    """Parts of another driver than the one that is to be there, sorted.

    :param installed: package → version
    """
    return sorted(name for name, version in installed.items() if _why_not(name, version, driver))


def objections(changes: Sequence[Change], driver: Driver, gpus: Collection[Gpu], catalog: Catalog) -> list[str]:
    """Why an installation must not be done, one sentence for each part of another driver that would come with it.

    :param changes: what apt would do
    :param gpus: the GPUs that the driver is for
    """
    found = []
    for change in changes:
        why = _why_not(change.package, change.version, driver) if change.action == "install" else ""
        why = why or _foreign(change, driver)
        if not why:
            continue
        branch = branch_of(change.package, change.version)
        dropped = _dropped(gpus, branch, catalog) if branch else ""
        found.append(
            f"{change.package} {change.version} ({change.origin or 'of unknown origin'}) would be installed, {why}{dropped}:"
            f" look at `apt-cache policy {change.package}` and `apt-mark showhold` there for what asks for it, take that away,"
            " and run again."
        )
    return found


def _why_not(package: str, version: str, driver: Driver) -> str:
    """Why a package is no part of the driver that is wanted; empty where it is one, or a part of none."""
    branch = branch_of(package, version)
    if branch is None or (package in TOOLS and origin(driver) != "nvidia"):
        return ""
    if not driver.branch:
        return "and the driver of this host is not to be touched"
    if branch != driver.branch:
        return f"which is of branch {branch}, and {driver.branch} is wanted"
    # NVIDIA's own nvidia-kernel-support serves both modules.
    flavour = None if origin(driver) == "nvidia" and package.endswith("-support") else flavour_of(package)
    if flavour and driver.flavour and flavour != driver.flavour:
        return f"which is the {flavour} module, and the {driver.flavour} one is wanted"
    return ""


def _foreign(change: Change, driver: Driver) -> str:
    """Parts of the same branch from two sources do not fit together, either."""
    if change.action != "install" or branch_of(change.package, change.version) is None or change.package in TOOLS:
        return ""
    from_nvidia = change.origin.startswith("NVIDIA")
    if origin(driver) == "distribution" and from_nvidia:
        return "which is NVIDIA's, and the distribution's driver is wanted"
    if origin(driver) == "nvidia" and change.origin.startswith(("Debian", "Ubuntu")):
        return "which is the distribution's, and NVIDIA's driver is wanted"
    return ""


def _dropped(gpus: Collection[Gpu], branch: int, catalog: Catalog) -> str:
    """What follows where a branch does not drive a GPU any more."""
    for gpu in gpus:
        last = catalog.generations[gpu.generation].last_branch if gpu.generation else None
        if last is not None and branch > last:
            return f"; branch {branch} has dropped {title(gpu)}, whose last one is {last}"
    return ""
