"""The CUDA toolkit on a host itself, for builds without Docker: where it comes from. Pure."""

from __future__ import annotations

from roles.cluster.plan import HostPlan
from roles.gpus.catalog import Catalog, ToolkitOffer


def offer(plan: HostPlan, catalog: Catalog) -> ToolkitOffer | None:
    """Where the planned toolkit comes from on this host; None where it is not to be had, or none is planned."""
    distribution = catalog.distributions.get(plan.profile.system)
    return distribution.toolkits.get(plan.compute.toolkit) if distribution and plan.compute.toolkit else None


def refusal(plan: HostPlan, catalog: Catalog) -> str:
    """Why the planned toolkit cannot be installed on this host, and the way out; empty where it can, or none is planned."""
    wanted = plan.compute.toolkit
    if wanted is None or offer(plan, catalog):
        return ""
    distribution = catalog.distributions.get(plan.profile.system)
    there = ", ".join(distribution.toolkits) if distribution else ""
    where = distribution.title if distribution else plan.profile.system
    return (
        f"nvidia_toolkit = True, and for {where} there is no package of the planned CUDA toolkit {wanted} (there are:"
        f" {there or 'none'}): set `cuda_toolkit` to one of them if the GPUs can do with it, or leave `nvidia_toolkit` out and"
        " build with Docker."
    )
