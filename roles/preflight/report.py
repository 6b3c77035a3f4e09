"""What preflight prints: a table for each host, and one for the cluster. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from roles.cluster.backend import title
from roles.cluster.driver import SOURCES
from roles.cluster.plan import GROUPS, Host, Plan
from roles.cluster.provision import MachinePlan
from roles.cluster.toolkit import ComputePlan
from roles.gpus.gpu import Gpu
from roles.gpus.link import Verdict
from roles.gpus.state import Kind

REFUSED = "not decided, since something is refused"
STYLES = {Verdict.SLOW: "yellow", Verdict.NARROW: "yellow", Verdict.UNREACHABLE: "red"}


@dataclass(frozen=True)
class Row:
    """One line of a table, or several of a long text.

    :param style: rich's, for terminals that have colours
    """

    label: str
    text: str
    style: str = ""


def report(plan: Plan, hosts: Sequence[Host], steps: Mapping[str, Sequence[str]]) -> Group:
    """Everything, in plain text that needs 80 columns and no colours.

    :param hosts: what the plan was made from; those of it are shown
    :param steps: host → what would be done there about llama.cpp
    """
    parts: list[RenderableType] = []
    for host in hosts:
        kinds = [group.removesuffix("s") for group in GROUPS if group in host.groups]
        heading = f"{host.name}: {', '.join([*kinds, host.machine.os_name])}"
        parts += _table(heading, host_rows(plan, host, steps.get(host.name, ())))
    parts += _table("cluster", cluster_rows(plan))
    return Group(*parts)


def host_rows(plan: Plan, host: Host, steps: Sequence[str]) -> Iterator[Row]:
    """What is said of one host."""
    machine, there = plan.machines[host.name], plan.hosts.get(host.name)
    for gpu in machine.gpus:
        yield from _gpu_rows(gpu)
    for left in machine.left_out:
        yield from _gpu_rows(left.gpu)
        yield Row("unused", left.reason)
    if not machine.gpus and not machine.left_out:
        yield Row("GPU", "none")
    yield from _driver_rows(machine)
    if there:
        yield Row("build", _build(there.compute))
        yield Row("profile", there.profile.name)
    else:
        yield Row("build", REFUSED if host.serves else "none: it is neither worker nor head")
    yield from _rows("choice", machine.choices)
    yield from _rows("to do", [*machine.steps, *steps] or [REFUSED if host.serves else "nothing"])
    yield Row("reboot", f"owed: {machine.reboot}" if machine.reboot else "none is owed", "yellow" if machine.reboot else "")


def cluster_rows(plan: Plan) -> Iterator[Row]:
    """What is said of all hosts together; what is refused comes last."""
    yield Row("commit", plan.commit or REFUSED)
    # A worker of which something is refused is no host of the plan.
    names = {f"{there.address}:{there.rpc_port}": f" ({name})" for name, there in plan.hosts.items() if there.worker}
    for name, there in plan.hosts.items():
        if there.head:
            used = ", ".join(endpoint + names.get(endpoint, "") for endpoint in there.endpoints)
            yield Row("head", f"{name}, on {there.address}:{there.http_port}, uses {used or 'nothing'}")
    yield from _rows("warning", plan.warnings, "yellow")
    yield from _rows("refused", plan.refusals or ["nothing"], "red" if plan.refusals else "")


def _gpu_rows(gpu: Gpu) -> Iterator[Row]:
    yield Row("GPU", title(gpu), "bold")
    yield Row("memory", _memory(gpu))
    if gpu.link is None:
        yield Row("link", "not seen: the GPU is declared in the inventory")
    else:
        yield Row("link", f"{gpu.link.verdict}: {gpu.link.reason}", STYLES.get(gpu.link.verdict, ""))
    yield from _rows("note", gpu.notes)


def _memory(gpu: Gpu) -> str:
    if gpu.memory_mib is not None:
        return f"{gpu.memory_mib} MiB"
    return "a part of the processor's" if gpu.integrated else "not known: no driver says it"


def _driver_rows(machine: MachinePlan) -> Iterator[Row]:
    """NVIDIA's driver, now and wanted; of others what the kernel has, which is all that they need."""
    if machine.driver or machine.driver_now:
        yield Row("driver", str(machine.driver_now or "none"))
        yield from _state_rows(machine)
        yield Row("wanted", _wanted(machine))
    elif machine.gpus:
        yield from _rows("driver", dict.fromkeys(gpu.driver or "none" for gpu in machine.gpus))


def _state_rows(machine: MachinePlan) -> Iterator[Row]:
    """Of a driver that does not simply work; that there is none has been told."""
    found = machine.driver_state
    if found and found.kind not in (Kind.LOADED, Kind.NOT_INSTALLED):
        yield Row("state", found.sentence, "yellow")


def _wanted(machine: MachinePlan) -> str:
    driver = machine.driver
    if driver is None:
        return REFUSED if any(gpu.vendor == "nvidia" for gpu in machine.gpus) else "none is needed: what is there stays"
    if driver.source == "loaded":
        return "the same" if str(driver) == str(machine.driver_now) else f"{driver}, which is installed"
    if driver.source == "unmanaged":
        return "whatever you install (driver = 'unmanaged')"
    return f"{driver} from {SOURCES[driver.source]}"


def _build(compute: ComputePlan) -> str:
    architectures = f" for {', '.join(compute.architectures)}" if compute.architectures else ""
    return f"{compute.backend} {compute.toolkit or ''}".rstrip() + architectures


def _rows(label: str, texts: Iterable[str], style: str = "") -> Iterator[Row]:
    return (Row(label, text, style) for text in texts)


def _table(heading: str, rows: Iterator[Row]) -> list[RenderableType]:
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(min_width=len("warning"), no_wrap=True)
    table.add_column(overflow="fold")
    for row in rows:
        # As Text, since the square brackets of a name are no markup.
        table.add_row(Text(row.label), Text(row.text, style=row.style))
    return [Text(heading, style="bold"), Padding(table, (0, 0, 1, 2), expand=False)]
