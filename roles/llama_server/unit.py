"""The head's unit. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import IPv4Address

from roles.base.download import Download
from roles.base.units import container
from roles.base.units import render as render_template
from roles.cluster.plan import HostPlan
from roles.cluster.state import LLAMA_SERVER, Unit, marked
from roles.llama_cpp.container import Program, command_line
from roles.llama_cpp.flags import Option, arguments
from roles.llama_server.settings import EVERY_NETWORK, Settings

TARGET = "llama-server"

WAIT_FOR_WORKERS = 60
"""Seconds that a start of the unit waits until all workers take connections; then systemd tries again."""

WAITING = (
    f"deadline=$((SECONDS + {WAIT_FOR_WORKERS})); for endpoint; do "
    """until timeout 2 bash -c ': <"/dev/tcp/$0/$1"' "${endpoint%:*}" "${endpoint#*:}" 2>/dev/null; do """
    'if ((SECONDS >= deadline)); then echo "no worker answers at $endpoint" >&2; exit 1; fi; sleep 0.5; '
    "done; done"
)
"""A bash script whose arguments are endpoints; it names the one that is missing."""


def address(plan: HostPlan, settings: Settings) -> IPv4Address:
    """The address to listen on."""
    if settings.host is not None:
        return settings.host
    return EVERY_NETWORK if settings.listen_on_every_network else plan.address


def options(plan: HostPlan, settings: Settings, model: Sequence[Download]) -> list[Option]:
    """The command line behind the program's name.

    :param model: its files, in order
    """
    found = [
        Option(("--model", model[0].path)),
        Option(("--host", str(address(plan, settings)))),
        Option(("--port", str(plan.http_port))),
        Option(("--metrics",)),
        Option(("--ctx-size", str(settings.context_size)), "llama_server_context_size"),
    ]
    if plan.endpoints:
        # The prompt cache saves and restores a worker's part of a context through the network.
        found += [Option(("--rpc", ",".join(plan.endpoints)), "endpoints"), Option(("--cache-ram", "0"))]
    if settings.gpu_layers is not None:
        found.append(Option(("--gpu-layers", str(settings.gpu_layers)), "llama_server_gpu_layers"))
    if settings.parallel is not None:
        found.append(Option(("--parallel", str(settings.parallel)), "llama_server_parallel"))
    if settings.tensor_split:
        shares = ",".join(f"{share:g}" for share in settings.tensor_split)
        found.append(Option(("--tensor-split", shares), "llama_server_tensor_split"))
    if settings.extra_arguments:
        found.append(Option(tuple(settings.extra_arguments), "llama_server_extra_arguments"))
    return found


def render(plan: HostPlan, settings: Settings, program: Program, model: Sequence[Download]) -> str:
    """The unit's text, with its mark.

    :param model: its files, in order
    """
    environment = {**_environment(plan), **settings.environment}
    words = arguments(options(plan, settings, model))
    text = render_template(
        f"systemd/{LLAMA_SERVER}.j2",
        command=command_line(LLAMA_SERVER, plan, program, words, variables=environment, files=[file.path for file in model]),
        hashes=[file.sha256 for file in model],
        environment=environment,
        container=container(LLAMA_SERVER) if program.image else "",
        private_devices=not plan.head_has_devices,
        wait_command=["/bin/bash", "-c", WAITING, "wait-for-workers", *plan.endpoints] if plan.endpoints else [],
        start_timeout=WAIT_FOR_WORKERS + 30,
    )
    return marked(text, plan.release)


def _environment(plan: HostPlan) -> Mapping[str, str]:
    """What its release needs; where its own worker lends it the GPUs, it is to see none of them itself."""
    if not plan.lends_to_itself:
        return plan.compute.environment
    return {"CUDA_VISIBLE_DEVICES": "-1"} if plan.head_has_devices else {}


def unit(plan: HostPlan, settings: Settings, program: Program, model: Sequence[Download]) -> Unit:
    """What the switch is offered; the arguments are those of `render`."""
    text = render(plan, settings, program, model)
    backend = "" if plan.lends_to_itself else plan.compute.backend
    return Unit(text, f"{address(plan, settings)}:{plan.http_port}", plan.endpoints, backend)
