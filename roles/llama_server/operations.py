"""What a head offers to the switch."""

from __future__ import annotations

from pyinfra import host, state
from pyinfra.api import operation

from roles.base.download import Download
from roles.base.operations import Commands
from roles.cluster.look import current_switch
from roles.cluster.operations import fails
from roles.cluster.plan import HostPlan
from roles.cluster.state import LLAMA_SERVER
from roles.llama_cpp.facts import ReleasesFact
from roles.llama_cpp.flags import unknown_flags
from roles.llama_server.settings import Settings
from roles.llama_server.unit import TARGET, options, render


@operation()
def offer(plan: HostPlan, settings: Settings, model: list[Download]) -> Commands:
    """Offer the unit for the release that is planned; fail where that build does not know a flag of it."""
    manifest = host.get_fact(ReleasesFact).get(plan.release)
    if manifest is None:
        # While the run is only prepared, the release may still have to be built.
        if state.is_executing:
            yield fails(f"{host.name}: the release {plan.release} is not there: run again to build it.")
        return
    unknown = unknown_flags(manifest, TARGET, options(plan, settings, model))
    if unknown:
        yield fails("\n".join(f"{host.name}: {sentence}" for sentence in unknown))
        return
    current_switch().offer(host.name, LLAMA_SERVER, render(plan, settings, manifest.programs[TARGET], model))
    host.noop("its unit is offered to the switch")
