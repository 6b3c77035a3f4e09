"""What GPUs need of packages beside a kernel driver: firmware, and Vulkan on the host itself. Pure.

A container brings the rest with it: of its host SYCL and ROCm want the kernel's driver, its firmware, and access to /dev/dri
and /dev/kfd.
"""

from __future__ import annotations

from dataclasses import replace

from roles.cluster.backend import Selection
from roles.cluster.driver import Driver
from roles.cluster.remarks import Remarks
from roles.gpus.catalog import Catalog

PROXMOX = "-pve"
"""How the releases of Proxmox VE's kernels end."""


def plan_graphics(selection: Selection, kernel: str, system: str, catalog: Catalog, remarks: Remarks) -> tuple[str, ...]:
    """The packages for Intel's and AMD's GPUs.

    :param kernel: release of the running kernel
    :param system: distribution and release, e.g. debian13
    """
    known = catalog.distributions.get(system)
    vendors = dict.fromkeys(gpu.vendor for gpu in selection.gpus if gpu.vendor in ("amd", "intel"))
    if known is None or not vendors:
        return ()
    vulkan = known.graphics.vulkan if selection.backend == "vulkan" else ()
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
    driver: Driver | None, selection: Selection, kernel: str, system: str, catalog: Catalog, remarks: Remarks
) -> Driver | None:
    """NVIDIA's driver with its Vulkan part, where GPUs of theirs compute with that: the packages for computing lack it."""
    if driver is None or selection.backend != "vulkan":
        return driver
    known = catalog.distributions.get(system)
    offers = known.drivers if known else ()
    names = next((offer.vulkan for offer in offers if (offer.origin, offer.branch) == (driver.source, driver.branch)), ())
    if known is None or not names:
        remarks.warnings.append(
            f"Vulkan needs a part of NVIDIA driver {driver.version or '(unknown)'} that cannot be chosen here: see that"
            " `vulkaninfo --summary` lists the GPU there, or leave `backend` out to compute with CUDA."
        )
        return driver
    names = known.packages_for(names, kernel)
    remarks.steps.append(f"install the Vulkan part of NVIDIA driver {driver}: {', '.join(names)}")
    return replace(driver, packages=(*driver.packages, *names))
