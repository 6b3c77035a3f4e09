"""What a head offers to the switch."""

from __future__ import annotations

from pyinfra import host
from pyinfra.api import operation

from roles.base.download import Download
from roles.base.operations import Commands
from roles.cluster.look import current_switch
from roles.cluster.plan import HostPlan
from roles.cluster.state import LLAMA_SERVER
from roles.llama_cpp.operations import usable_program
from roles.llama_server.settings import Settings
from roles.llama_server.unit import TARGET, options, unit


@operation()
def offer(plan: HostPlan, settings: Settings, model: list[Download]) -> Commands:
    """Offer the unit for the release that is planned; fail where that build does not know a flag of it."""
    program = yield from usable_program(plan, TARGET, options(plan, settings, model))
    if program:
        current_switch().offer(host.name, LLAMA_SERVER, unit(plan, settings, program, model))
        host.noop("its unit is offered to the switch")
