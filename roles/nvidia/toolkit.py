"""The CUDA toolkit on a host itself, where containers do not bring it: what a host needs of it, and where from. Pure."""

from __future__ import annotations

from roles.cluster.plan import HostPlan
from roles.gpus.catalog import Catalog, ToolkitOffer


def offer(plan: HostPlan, catalog: Catalog) -> ToolkitOffer | None:
    """Where the planned toolkit comes from on this host; None where it is not to be had, or none is planned."""
    return catalog.toolkit_offer(plan.profile.system, plan.compute.toolkit)


def packages(plan: HostPlan, wish: bool | None, catalog: Catalog) -> tuple[str, ...]:
    """What a host needs of the planned toolkit; empty where it needs nothing, or where it is not to be had.

    :param wish: the setting `nvidia_toolkit`
    """
    found = offer(plan, catalog)
    if found is None or not _is_wanted(plan, wish):
        return ()
    return found.build_packages if wish or plan.builds else found.runtime


def refusal(plan: HostPlan, wish: bool | None, catalog: Catalog) -> str:
    """Why the planned toolkit cannot be installed on this host, and the way out; empty where it can, or is not wanted.

    :param wish: the setting `nvidia_toolkit`
    """
    if not _is_wanted(plan, wish) or offer(plan, catalog):
        return ""
    distribution = catalog.distributions.get(plan.profile.system)
    there = ", ".join(distribution.toolkits) if distribution else ""
    where = distribution.title if distribution else plan.profile.system
    return (
        f"its release needs CUDA {plan.compute.toolkit}, and for {where} there is no package of that toolkit (there are:"
        f' {there or "none"}): set runtime = "docker" for this host, or `cuda_toolkit` to one of them if its GPUs and driver can'
        " do with that, or install it yourself and set `nvidia_toolkit = False`."
    )


def _is_wanted(plan: HostPlan, wish: bool | None) -> bool:
    """The images of a host with Docker have it."""
    return wish is not False and plan.compute.toolkit is not None and plan.runtime == "native"
