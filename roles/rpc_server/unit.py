"""The worker's unit. Pure."""

from __future__ import annotations

from ipaddress import IPv4Address

from roles.base.units import render as render_template
from roles.cluster.plan import HostPlan
from roles.cluster.state import CURRENT, RPC_SERVER, Unit, marked
from roles.llama_cpp.flags import Option, arguments
from roles.rpc_server.settings import EVERY_NETWORK, Settings

TARGET = "rpc-server"


def address(plan: HostPlan, settings: Settings) -> IPv4Address:
    """The address to listen on."""
    if settings.host is not None:
        return settings.host
    return EVERY_NETWORK if settings.listen_on_every_network else plan.address


def options(plan: HostPlan, settings: Settings) -> list[Option]:
    """The command line behind the program's name."""
    found = [Option(("--host", str(address(plan, settings)))), Option(("--port", str(plan.rpc_port)))]
    if settings.cache:
        found.append(Option(("--cache",), "rpc_server_cache"))
    if settings.threads is not None:
        found.append(Option(("--threads", str(settings.threads)), "rpc_server_threads"))
    if settings.devices:
        found.append(Option(("--device", ",".join(settings.devices)), "rpc_server_devices"))
    if settings.extra_arguments:
        found.append(Option(tuple(settings.extra_arguments), "rpc_server_extra_arguments"))
    return found


def render(plan: HostPlan, settings: Settings, program: str) -> str:
    """The unit's text, with its mark.

    :param program: path of the RPC server inside the release
    """
    text = render_template(
        f"systemd/{RPC_SERVER}.j2",
        command=[f"{CURRENT}/{program}", *arguments(options(plan, settings))],
        environment=settings.environment,
    )
    return marked(text, plan.release)


def unit(plan: HostPlan, settings: Settings, program: str) -> Unit:
    """What the switch is offered; the arguments are those of `render`."""
    endpoint = f"{plan.address}:{plan.rpc_port}"
    return Unit(render(plan, settings, program), f"{address(plan, settings)}:{plan.rpc_port}", (endpoint,))
