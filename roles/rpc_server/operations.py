"""What a worker offers to the switch."""

from __future__ import annotations

from pyinfra import host
from pyinfra.api import operation

from roles.base.operations import Commands
from roles.cluster.look import current_switch
from roles.cluster.plan import HostPlan
from roles.cluster.state import RPC_SERVER
from roles.llama_cpp.operations import usable_program
from roles.rpc_server.settings import Settings
from roles.rpc_server.unit import TARGET, options, unit


@operation()
def offer(plan: HostPlan, settings: Settings) -> Commands:
    """Offer the unit for the release that is planned; fail where that build does not know a flag of it."""
    program = yield from usable_program(plan, TARGET, options(plan, settings))
    if program:
        current_switch().offer(host.name, RPC_SERVER, unit(plan, settings, program))
        host.noop("its unit is offered to the switch")
