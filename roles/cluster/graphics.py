"""What GPUs need of packages beside a kernel driver: firmware, and Vulkan on the host itself. Pure.

A container brings the rest with it: of its host SYCL and ROCm want the kernel's driver, its firmware, and access to /dev/dri
and /dev/kfd.
"""

from __future__ import annotations

from dataclasses import replace

from roles.cluster.backend import Selection, title
from roles.cluster.driver import Driver
from roles.cluster.remarks import Remarks
from roles.cluster.settings import Runtime
from roles.gpus.catalog import Catalog, Distribution
from roles.gpus.driver import Drivers

PROXMOX = "-pve"
"""How the releases of Proxmox VE's kernels end."""


def plan_graphics(
    selection: Selection, runtime: Runtime, kernel: str, system: str, catalog: Catalog, remarks: Remarks
) -> tuple[str, ...]:
    """The packages for Intel's and AMD's GPUs, and for Vulkan without any GPU.

    :param runtime: what runs here; a container brings Vulkan with it
    :param kernel: release of the running kernel
    :param system: distribution and release, e.g. debian13
    """
    known = catalog.distributions.get(system)
    gpus = [gpu for gpu in selection.gpus if gpu.vendor in ("amd", "intel")]
    vendors = dict.fromkeys(gpu.vendor for gpu in gpus)
    remarks.warnings += [
        f"{title(gpu)} has no driver: if its firmware has come since the host was started, reboot it; else see `dmesg` there."
        for gpu in gpus
        if gpu.address and not gpu.driver
    ]
    if known is None:
        return ()
    mesa = bool(vendors) or not selection.gpus
    vulkan = known.graphics.vulkan if selection.backend == "vulkan" and runtime == "native" and mesa else ()
    if kernel.endswith(PROXMOX):
        # Proxmox VE has firmware of its own, and depends on that: Debian's packages would remove all of it.
        if vulkan:
            remarks.warnings.append(
                f"nothing is installed for its GPUs, because it runs Proxmox VE's kernel: install {', '.join(vulkan)} yourself,"
                " or give the GPUs to a virtual machine."
            )
        return ()
    firmware = [name for vendor, names in known.graphics.firmware.items() if vendor in vendors for name in names]
    return tuple(dict.fromkeys([*firmware, *vulkan]))


def with_vulkan(
    driver: Driver | None, selection: Selection, drivers: Drivers, system: str, catalog: Catalog, remarks: Remarks
) -> Driver | None:
    """NVIDIA's driver with its Vulkan part, where GPUs of theirs compute with that: the packages for computing lack it."""
    if driver is None or selection.backend != "vulkan":
        return driver
    known = catalog.distributions.get(system)
    names = _vulkan_of(driver, known, drivers.next_kernel) if known else ()
    if not names:
        remarks.warnings.append(
            f"Vulkan needs a part of NVIDIA driver {driver.version or '(unknown)'} that cannot be chosen here: see that"
            " `vulkaninfo --summary` lists the GPU there, or leave `backend` out to compute with CUDA."
        )
        return driver
    if names[0] not in drivers.nvidia.packages:
        remarks.steps.append(f"install the Vulkan part of NVIDIA driver {driver}: {', '.join(names)}")
    return replace(driver, packages=(*driver.packages, *names))


def _vulkan_of(driver: Driver, known: Distribution, kernel: str) -> tuple[str, ...]:
    """The packages beside those of the offer that a driver comes from; none where it came another way.

    A driver that is there carries the packages of its offer, too, so that this stays the same after it was installed.
    """
    for offer in known.drivers:
        for names in offer.packages.values():
            if offer.branch == driver.branch and set(known.packages_for(names, kernel)) & set(driver.packages):
                return known.packages_for(offer.vulkan, kernel)
    return ()
