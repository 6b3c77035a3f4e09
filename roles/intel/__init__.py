"""What an Intel GPU needs to compute: its firmware, Vulkan where the host itself computes with that, and access for our services.

A host without a GPU that computes with Vulkan all the same has Mesa from here, too, which is the driver for Intel's. A container
brings Vulkan, SYCL or ROCm with it. On a host: packages (see /var/lib/gpuquilt/packages/graphics) · in Debian
/etc/apt/sources.list.d/gpuquilt-components.sources · the user `llama` in the groups `render` and `video`.
"""

from pyinfra.api import deploy

from roles.base.graphics import graphics, no_graphics
from roles.cluster.provision import MachinePlan

__all__ = ["prepare", "remove"]

remove = no_graphics


@deploy("Intel GPUs")
def prepare(machine: MachinePlan) -> None:
    """Make it so where one computes; touches no service of ours."""
    if any(gpu.vendor == "intel" for gpu in machine.gpus) or (machine.graphics and not machine.gpus):
        graphics(packages=machine.graphics)
