"""The worker's unit. Pure."""

from __future__ import annotations

from ipaddress import IPv4Address

from roles.base.units import container
from roles.base.units import render as render_template
from roles.cluster.plan import HostPlan
from roles.cluster.state import RPC_SERVER, Unit, marked
from roles.llama_cpp.container import Program, command_line
from roles.llama_cpp.flags import Option, arguments
from roles.rpc_server.settings import EVERY_NETWORK, Settings

TARGET = "rpc-server"

CHOICES = frozenset(
    {
        "CUDA_VISIBLE_DEVICES",
        "GGML_CUDA_DEVICES",
        "GGML_VK_VISIBLE_DEVICES",
        "HIP_VISIBLE_DEVICES",
        "ONEAPI_DEVICE_SELECTOR",
        "ROCR_VISIBLE_DEVICES",
    }
)
"""Variables by which llama.cpp's devices are others than the GPUs that are there."""

LINE_BY_LINE = ("/usr/bin/stdbuf", "-oL")
"""What makes it say at once which devices it serves: it would keep that to itself until a head comes."""


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
    elif plan.names and gpus(plan, settings):
        found.append(Option(("--device", ",".join(plan.names))))
    if settings.extra_arguments:
        found.append(Option(tuple(settings.extra_arguments), "rpc_server_extra_arguments"))
    return found


def render(plan: HostPlan, settings: Settings, program: Program) -> str:
    """The unit's text, with its mark."""
    environment = {**plan.compute.environment, **settings.environment}
    words = arguments(options(plan, settings))
    text = render_template(
        f"systemd/{RPC_SERVER}.j2",
        command=command_line(RPC_SERVER, plan, program, words, LINE_BY_LINE, environment, stop_signal="SIGKILL"),
        environment=environment,
        container=container(RPC_SERVER) if program.image else "",
    )
    return marked(text, plan.release)


def gpus(plan: HostPlan, settings: Settings) -> int:
    """How many GPUs it must lend, no fewer and no more; 0 where the inventory chooses among them itself, or there are none."""
    chosen = settings.devices or CHOICES & settings.environment.keys()
    return 0 if chosen else plan.gpus


def unit(plan: HostPlan, settings: Settings, program: Program) -> Unit:
    """What the switch is offered; the arguments are those of `render`."""
    endpoint = f"{plan.address}:{plan.rpc_port}"
    listens = f"{address(plan, settings)}:{plan.rpc_port}"
    return Unit(render(plan, settings, program), listens, (endpoint,), plan.compute.backend, gpus(plan, settings))
