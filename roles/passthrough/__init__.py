"""GPUs of a hypervisor that belong to its virtual machines: bound to vfio-pci before any other driver can touch them.

On a host: two scripts below /etc/initramfs-tools (scripts/init-top/00-gpuquilt-passthrough, hooks/gpuquilt-passthrough) · with
GRUB /etc/default/grub.d/gpuquilt-passthrough.cfg · with systemd-boot some words in /etc/kernel/cmdline · with systemd-boot or
proxmox-boot-tool /var/lib/gpuquilt/passthrough · what the host makes of these: initramfs, and entries of the boot loader.
The kernel's argument says which functions are bound, and the IOMMU is switched on beside it; without it the scripts do nothing.
"""

from posixpath import dirname

from pyinfra import host
from pyinfra.api import deploy

from roles.base.operations import WORK
from roles.base.removal import no_paths
from roles.base.settings import HostSettings
from roles.cluster.provision import MachinePlan
from roles.passthrough import operations
from roles.passthrough.boot import problems
from roles.passthrough.facts import BootFact

__all__ = ["check", "prepare", "remove", "verify"]


def check(machine: MachinePlan, settings: HostSettings) -> list[str]:
    """Why this host cannot be made to bind its cards, one sentence each."""
    return problems(host.get_fact(BootFact), machine) if machine.passthrough else []


@deploy("Passthrough")
def prepare(machine: MachinePlan) -> None:
    """Have the host boot so, or no longer; touches no service of ours, and changes nothing before a reboot."""
    operations.settle(name="Boot with passthrough as planned", machine=machine)


@deploy("Passthrough after the reboot")
def verify(machine: MachinePlan) -> None:
    """Fail where the cards are not bound as planned; else say what the virtual machines need to have them."""
    operations.verify(name="Look at what is bound", machine=machine)


@deploy("Passthrough is taken back")
def remove() -> None:
    """Take away what `prepare` has left; the cards are back with their own drivers after the next reboot."""
    operations.take_back(name="Boot without passthrough")
    work = [f"{WORK}/gpuquilt-{name}" for name in (operations.INITRAMFS, operations.BOOT_LOADER)]
    no_paths(name="No scripts and logs of it", paths=work, folders=[WORK, dirname(WORK)])
