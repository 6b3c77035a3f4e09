"""Real machines on this computer: systemd as PID 1, sshd, an address of their own, and no hardware needed.

Here: one systemd-nspawn process, overlay mount and interface ``vb-…`` per machine · a bridge · an nftables table ·
``sandbox_state`` (the machines, their keys, machines.json) · ``sandbox_cache`` (downloads, the machines' common base, and what
their compilers have made).
Where systemd is PID 1 each machine is a transient unit; elsewhere a process in control groups of its own.
"""

from __future__ import annotations

from pyinfra import host
from pyinfra.api import deploy
from pyinfra.api.exceptions import PyinfraError
from pyinfra.connectors.local import LocalConnector

from roles.base.settings import HostData, read_settings
from roles.sandbox import decisions, operations
from roles.sandbox.facts import SandboxFact
from roles.sandbox.layout import lay_out
from roles.sandbox.settings import Settings

__all__ = ["sandbox_down", "sandbox_image", "sandbox_up"]


@deploy("Sandbox")
def sandbox_up() -> None:
    """All machines run and answer.

    :raises PyinfraError: a setting is wrong or this computer is not fit for it; nothing was changed
    """
    settings = _settings()
    layout = lay_out(settings)
    found = host.get_fact(SandboxFact, layout=layout)
    nameservers = [str(settings.sandbox_nameserver)] if settings.sandbox_nameserver else list(found.nameservers)
    _refuse(decisions.refusals(found, layout, nameservers, _is_local()))
    operations.packages(name="Packages of this computer", layout=layout)
    operations.described(name="machines.json", layout=layout)
    operations.mirror(name="Mirror of llama.cpp (downloads 150 MB)", layout=layout)
    operations.model(name="Model (downloads 230 MB)", layout=layout)
    for suite in layout.suites:
        operations.base(name=f"Base of {suite} (downloads about 70 MB)", layout=layout, suite=suite)
    operations.keys(name="SSH keys", layout=layout)
    operations.kernel_settings(name="Kernel settings", layout=layout)
    operations.bridge(name=f"Bridge {layout.bridge}", layout=layout)
    operations.table(name=f"nftables table {layout.table}", layout=layout)
    for machine in layout.machines:
        operations.machine_runs(name=f"Machine {machine.name}", layout=layout, machine=machine, nameservers=nameservers)
    operations.machines_answer(name="Machines answer", layout=layout)
    operations.mirror_is_reached(name="Package mirror is reached", layout=layout)


@deploy("Base image")
def sandbox_image(image: str) -> None:
    """A machine of a sandbox, on which Docker runs, has a container image of its own Debian.

    :param image: what the inventory calls it
    """
    operations.base_image(name=f"Image {image}", image=image)


@deploy("Sandbox down")
def sandbox_down() -> None:
    """Nothing of the sandbox is left but its cache, and not even that with ``sandbox_purge``.

    :raises PyinfraError: a setting is wrong or this is not root on this computer; nothing was changed
    """
    settings = _settings()
    layout = lay_out(settings)
    found = host.get_fact(SandboxFact, layout=layout)
    _refuse(decisions.must_be_root_here(found, _is_local()) + decisions.foreign_folder(found, layout))
    operations.powered_off(name="Machines power off", layout=layout)
    operations.network_gone(name="Network", layout=layout)
    operations.kernel_settings_back(name="Kernel settings", layout=layout)
    operations.folders_gone(name="Folders and mounts", layout=layout)
    if settings.sandbox_purge:
        operations.cache_gone(name="Cache", layout=layout)


def _settings() -> Settings:
    ours = {key: value for key, value in host.data.dict().items() if key.startswith("sandbox_")}
    settings, problems = read_settings([Settings], [HostData(host.name, frozenset(host.groups), ours)])
    _refuse(problems)
    return settings[host.name][Settings]


def _is_local() -> bool:
    return host.connector_cls is LocalConnector


def _refuse(sentences: list[str]) -> None:
    if sentences:
        raise PyinfraError("\n".join(sentences))
