"""NVIDIA's driver on a host, of the branch that the plan names, and nothing that could move it away from there.

On the host: /etc/apt/preferences.d/00gpuquilt-nvidia (no other branch), /etc/apt/apt.conf.d/52gpuquilt-nvidia (no unattended
upgrade), /etc/modprobe.d/gpuquilt-nvidia.conf (no nouveau, of which the initial RAM disks are told), gpuquilt-nvidia.service
(the device files), NVIDIA's repository with its key, or components of the distribution's own, and the packages of the driver;
where CUDA computes without Docker, the CUDA toolkit, or its run-time libraries alone where another host builds. Services of ours
go on with the module that is loaded until a reboot.
"""

from __future__ import annotations

from pyinfra import host
from pyinfra.api import deploy

from roles.base.facts import MissingPackagesFact
from roles.base.settings import HostSettings
from roles.cluster.plan import HostPlan
from roles.cluster.provision import MachinePlan
from roles.gpus.catalog import load
from roles.nvidia import operations, toolkit
from roles.nvidia.facts import SetupFact
from roles.nvidia.settings import Settings

__all__ = ["Settings", "check", "check_toolkit", "prepare", "prepare_toolkit", "remove", "toolkit_steps", "verify"]


def check(machine: MachinePlan, settings: HostSettings) -> list[str]:
    """Why this host cannot have it, one sentence each, as far as that can be known before anything is changed."""
    driver = machine.driver
    if driver is None or driver.source not in ("distribution", "nvidia") or not host.get_fact(SetupFact).installer:
        return []
    return [
        f"NVIDIA driver {machine.driver_now or 'of some version'} was put there by NVIDIA's own installer, a .run file, and no"
        f" package manager can exchange it for {driver}: run `nvidia-uninstall` there and reboot, or take out `driver` and"
        " `driver_flavour` if it can stay."
    ]


def check_toolkit(plan: HostPlan, settings: HostSettings) -> list[str]:
    """Likewise of the CUDA toolkit, on a host that computes with it itself."""
    refusal = toolkit.refusal(plan, settings[Settings].toolkit, load())
    return [refusal] if refusal else []


def toolkit_steps(plan: HostPlan, settings: HostSettings) -> list[str]:
    """What is still to be installed of the CUDA toolkit, in words."""
    names = toolkit.packages(plan, settings[Settings].toolkit, load())
    missing = host.get_fact(MissingPackagesFact, names=list(names)) if names else []
    return [f"install for CUDA {plan.compute.toolkit}: {', '.join(missing)}"] if missing else []


@deploy("NVIDIA driver")
def prepare(machine: MachinePlan, settings: Settings) -> None:
    """Make it so; touches no service of ours."""
    driver = machine.driver
    if driver is None or driver.source == "unmanaged":
        return
    operations.keep_to(name="Keep to one branch", driver=driver)
    if driver.packages:
        operations.sources(name="Package sources", driver=driver, settings=settings)
        operations.no_other_driver(name="No other driver", driver=driver, gpus=machine.gpus)
        operations.install(name="Packages of the driver", driver=driver, gpus=machine.gpus)
        operations.built(name="Module for the kernel that boots next")
    operations.nouveau_off(name="nouveau off from the start", driver=driver)
    operations.devices(name="Device files", driver=driver, reboots=machine.must_reboot)


@deploy("CUDA toolkit")
def prepare_toolkit(plan: HostPlan, machine: MachinePlan, settings: Settings) -> None:
    """Have what the host itself needs of the planned toolkit; to be called after `prepare`."""
    offer = toolkit.offer(plan, load())
    packages = toolkit.packages(plan, settings.toolkit, load())
    if offer and packages and machine.driver:
        operations.toolkit_source(name="Package source", origin=offer.origin, packages=packages, settings=settings)
        operations.install_toolkit(name="Packages of the toolkit", packages=packages, driver=machine.driver, gpus=machine.gpus)


@deploy("NVIDIA driver, verified")
def verify(machine: MachinePlan) -> None:
    """Fail, with the reason, where a card is there and the driver does not drive it; after a reboot that was owed."""
    if machine.driver and machine.driver.source != "unmanaged":
        operations.drives(name="The driver drives the GPUs", machine=machine)


@deploy("NVIDIA driver, taken back")
def remove() -> None:
    """Take back what the others have left: packages that came by us, sources, files. What runs goes on until a reboot."""
    operations.uninstall(name="Packages that came by us")
    operations.no_sources(name="Package sources")
    operations.keep_to_nothing(name="Files of apt and systemd")
    operations.nouveau_free(name="nouveau may be loaded")
