"""What an AMD GPU needs to compute: its firmware, Vulkan where the host itself computes with that, and access for our services.

A container brings Vulkan, SYCL or ROCm with it. On a host: packages (see /var/lib/gpuquilt/packages/graphics) · in Debian
/etc/apt/sources.list.d/gpuquilt-components.sources · the user `llama` in the groups `render` and `video`.
"""

from pyinfra.api import deploy

from roles.base.graphics import graphics, no_graphics
from roles.cluster.provision import MachinePlan

__all__ = ["prepare", "remove"]

remove = no_graphics


@deploy("AMD GPUs")
def prepare(machine: MachinePlan) -> None:
    """Make it so where one computes; touches no service of ours."""
    if any(gpu.vendor == "amd" for gpu in machine.gpus):
        graphics(packages=machine.graphics)
