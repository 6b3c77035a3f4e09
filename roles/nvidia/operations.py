"""Having NVIDIA's driver on a host, and taking it back."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from hashlib import sha256

from pyinfra import host, state
from pyinfra.api import FunctionCommand, StringCommand, operation
from pyinfra.api.host import Host
from pyinfra.api.state import State

from roles.base import apt, graphics
from roles.base.facts import MachineFact, MissingPackagesFact, RecordFact
from roles.base.operations import (
    SAID,
    Commands,
    Judge,
    chosen_packages,
    components,
    kept,
    long_work,
    no_repository,
    remove_packages,
    repository,
    written,
)
from roles.base.remote import Answer, complain, run, say
from roles.cluster.driver import Driver
from roles.cluster.operations import fails
from roles.cluster.provision import MachinePlan
from roles.gpus.catalog import load
from roles.gpus.facts import DriversFact, LspciFact, PciFact
from roles.gpus.gpu import Gpu
from roles.gpus.host import see
from roles.gpus.pci import Device
from roles.gpus.state import Kind
from roles.gpus.state import state as state_of
from roles.nvidia import sources as where
from roles.nvidia.facts import SetupFact
from roles.nvidia.parts import TOOLS, branch_of, leftovers, objections
from roles.nvidia.settings import Settings
from roles.nvidia.setup import Setup
from roles.nvidia.texts import FILES, FORGOTTEN, MODPROBE, UNIT, UNIT_FILE, texts

DRIVER = "nvidia"
TOOLKIT = "nvidia-toolkit"
"""How the records of what came by us are called."""


@operation()
def keep_to(driver: Driver) -> Commands:
    """apt, unattended upgrades and modprobe keep to this driver from now on; nothing is installed or started."""
    seen = host.get_fact(SetupFact)
    wanted = texts(driver)
    outdated = _outdated(seen, wanted)
    for path in outdated:
        yield written(path, wanted[path])
    if UNIT_FILE in outdated or seen.reload_owed:
        yield StringCommand("systemctl daemon-reload")
    host.noop("apt and modprobe keep to it")


@operation()
def sources(driver: Driver, settings: Settings) -> Commands:
    """The host can get the packages; those of a driver that is there come from where it came from."""
    if driver.source == "loaded":
        host.noop("the driver is there")
        return
    yield from _sources(driver.source, settings)


@operation()
def toolkit_source(origin: str, packages: Sequence[str], settings: Settings) -> Commands:
    """The host can get the packages of the toolkit.

    :param origin: ``distribution`` or ``nvidia``
    """
    if host.get_fact(MissingPackagesFact, names=list(packages)):
        yield from _sources(origin, settings)
    host.noop("the toolkit is there")


def _sources(origin: str, settings: Settings) -> Commands:
    machine = host.get_fact(MachineFact)
    if origin == "nvidia":
        wanted = where.repository(settings, f"{machine.os_id}{machine.os_version}")
        yield from repository._inner(repository=wanted)
    if names := where.components(origin, machine.os_id):
        yield from components._inner(names=list(names))


@operation()
def install(driver: Driver, gpus: Sequence[Gpu]) -> Commands:
    """The packages of the driver, unless apt would bring a part of another one with them."""
    yield from chosen_packages._inner(record=DRIVER, packages=list(driver.packages), judge=_judge(driver, gpus))


@operation()
def install_toolkit(packages: Sequence[str], driver: Driver, gpus: Sequence[Gpu]) -> Commands:
    """The packages of the toolkit, unless apt would bring a part of another driver with them."""
    yield from chosen_packages._inner(record=TOOLKIT, packages=list(packages), judge=_judge(driver, gpus))


def _judge(driver: Driver, gpus: Sequence[Gpu]) -> Judge:
    return lambda changes: objections(changes, driver, gpus, load())


@operation()
def built() -> Commands:
    """DKMS has the module for the kernel that boots next, which may have come before the headers, or before the driver."""
    seen = host.get_fact(DriversFact)
    if seen.nvidia.dkms is not False or not seen.headers:
        host.noop("it is there, or nothing can build it here")
        return
    sentence = (
        f"{host.name}: DKMS could not build NVIDIA's module for {seen.boots}: see /var/lib/dkms/nvidia*/*/build/make.log there."
    )
    build = f"PATH=$PATH:/usr/sbin:/sbin dkms autoinstall -k {shlex.quote(seen.boots)}"
    yield from long_work("nvidia-module", f"{build} && exit 0\necho {shlex.quote(sentence)}\nexit {SAID}\n")


@operation()
def no_other_driver(driver: Driver, gpus: Sequence[Gpu]) -> Commands:
    """Parts of another branch or of the other module go, once it is known that the new driver can be had without them.

    What runs goes on with the module that is loaded until the reboot.
    """
    old = leftovers(host.get_fact(SetupFact).packages, driver) if driver.source in ("distribution", "nvidia") else []
    if not old:
        host.noop("no part of another driver is there")
        return
    # What is to go need not be finished first: a module that DKMS cannot build may be the very reason to move.
    journal = '[ -z "$(updates)" ] || dpkg --force-confold --configure -a || true'
    yield from long_work("apt", f"{apt.script(host.name, ':')}{journal}\nrefresh_lists\n")
    yield FunctionCommand(_may_go, (old, list(driver.packages), _judge(driver, gpus)), {})
    names = shlex.join(old)
    script = apt.script(host.name, ":") + f'purge_packages nvidia-old "$(simulated purge {names})" {names}\n'
    yield from long_work("install-nvidia-old", script)


def _may_go(state: State, host: Host, old: list[str], new: list[str], judge: Judge) -> bool:
    """What both halves of the exchange would do is read before the first of them."""
    removal = run(state, host, f"LC_ALL=C apt-get --simulate purge {shlex.join(old)}", timeout=300)
    gone = [change.package for change in apt.changes(removal.output) if change.action == "remove"]
    # What hangs on an old part and is wanted all the same comes back.
    sentences = _read(removal, lambda changes: _lost([name for name in gone if name not in {*old, *new, *TOOLS}]))
    if not sentences:
        installation = run(state, host, _as_if_gone(gone, apt.install_command(new, moved=False)), timeout=300)
        sentences = _read(installation, lambda changes: [*judge(changes), *apt.unwanted_removals(changes, kept)])
    for sentence in sentences:
        complain(host, f"{host.name}: {sentence}")
    return not sentences


def _read(answer: Answer, judge: Judge) -> list[str]:
    return judge(apt.changes(answer.output)) if answer.ok else [apt.simulation_failed(answer.output, answer.errors)]


def _lost(packages: Sequence[str]) -> list[str]:
    if not packages:
        return []
    return [
        f"{', '.join(packages)} would go with the old NVIDIA driver, so nothing was removed: remove them yourself if you can do"
        " without them, or leave `driver` as it was."
    ]


def _as_if_gone(packages: Sequence[str], command: Sequence[str]) -> str:
    """A simulation on a copy of dpkg's status in which packages are missing."""
    gone = " ".join(name.partition(":")[0] for name in packages)
    program = 'BEGIN { RS = ""; ORS = "\\n\\n"; split(gone, names, " "); for (i in names) old[names[i]] } !($2 in old)'
    return f"""status=$(mktemp) && trap 'rm -f "$status"' EXIT
awk -v gone={shlex.quote(gone)} {shlex.quote(program)} /var/lib/dpkg/status >"$status"
LC_ALL=C apt-get --simulate -o Dir::State::status="$status" {shlex.join(command)}"""


@operation()
def nouveau_off(driver: Driver) -> Commands:
    """The initial RAM disks know that nouveau is off: it would take the GPUs before the root file system is there."""
    seen = host.get_fact(SetupFact)
    kernels = seen.initrds if MODPROBE in _outdated(seen, texts(driver)) else seen.old_initrds
    if kernels:
        yield from long_work("nvidia-initramfs", _make_initrds(kernels))
    else:
        host.noop("no initial RAM disk is older than what it is to know")


def _make_initrds(kernels: Sequence[str], file: str = MODPROBE) -> str:
    """Make the initial RAM disks of these kernels anew, those that are older than a file."""
    return f"""set -e
PATH=$PATH:/usr/sbin:/sbin
for kernel in {shlex.join(kernels)}; do
    initrd=/boot/initrd.img-$kernel
    [ {file} -nt "$initrd" ] || continue
    echo "making the initial RAM disk of $kernel"
    if command -v update-initramfs >/dev/null; then
        update-initramfs -u -k "$kernel"
    else
        dracut --force "$initrd" "$kernel"
    fi
    # After a clock that was put back the file would be younger for ever.
    if [ {file} -nt "$initrd" ]; then touch --reference="$initrd" {file}; fi
done
"""


@operation()
def devices(driver: Driver, reboots: bool) -> Commands:
    """The GPUs stay initialised, and their device files are there before anything computes: from each boot on, and now.

    :param reboots: what is loaded is not what is installed, so that nothing can be started before a reboot
    """
    seen = host.get_fact(SetupFact)
    unwritten = {UNIT} if UNIT_FILE not in seen.files else set()
    for unit in sorted(seen.disabled | unwritten):
        yield StringCommand(f"systemctl enable --quiet {unit}")
    starting = (seen.enabled | seen.disabled | unwritten) - seen.active if seen.loaded and not reboots else ()
    for unit in sorted(starting, reverse=True):
        sentence = f"{host.name}: {unit} did not start: see `journalctl -u {unit}` there for what failed, then run again."
        yield StringCommand(f"systemctl start {unit} || {{ echo {shlex.quote(sentence)} >&2; exit 1; }}")
    host.noop("they are there")


@operation()
def drives(machine: MachinePlan) -> Commands:
    """Fails where a card is there and the driver does not drive it."""
    drivers = host.get_fact(DriversFact)
    devices: tuple[list[Device], list[Device]] = host.get_fact(PciFact), host.get_fact(LspciFact)
    away = {out.gpu.address for out in machine.left_out}
    # What was only declared may have come with a reboot of its hypervisor.
    there = [gpu for gpu in see(*devices, drivers, load()) if gpu.vendor == "nvidia" and gpu.address not in away]
    found = state_of(drivers, there or [gpu for gpu in machine.gpus if gpu.address is None], load())
    if found.kind not in (Kind.LOADED, Kind.INSTALLED):
        yield fails(f"{host.name}: {found.sentence}")
    # While the run is only prepared, nothing has been installed yet.
    elif found.kind is Kind.INSTALLED and state.is_executing:
        say(host, found.sentence)
    host.noop(found.sentence)


@operation()
def uninstall() -> Commands:
    """Purge the packages that came by us, the toolkit before the driver."""
    for record in (TOOLKIT, DRIVER):
        yield from remove_packages._inner(record=record)


@operation()
def no_sources() -> Commands:
    """NVIDIA's repository, and our components of the distribution's archive, are no sources any more.

    What came from them and is still there, for other GPUs or by somebody else, gets its upgrades from them.
    """
    if any(branch_of(name, version) for name, version in host.get_fact(SetupFact).packages.items()):
        # In place of an entry of the user's own, perhaps, from which the driver that stays gets its upgrades.
        host.noop("a driver that did not come by us is there, and keeps its sources")
        return
    yield from no_repository._inner(repository=where.NAME)
    if not host.get_fact(RecordFact, record=graphics.RECORD).states:
        yield from components._inner(names=[])


@operation()
def keep_to_nothing() -> Commands:
    """Take our files away, but for modprobe's: what apt and systemd do is theirs again."""
    seen = host.get_fact(SetupFact)
    if UNIT_FILE in seen.files:
        yield StringCommand(f"systemctl disable --quiet --now {UNIT}; rm -f {UNIT_FILE}; systemctl daemon-reload")
    files = [path for path in FILES if path in seen.files and path not in (UNIT_FILE, MODPROBE)]
    if files:
        yield StringCommand(f"rm -f {' '.join(files)}")
    host.noop("there is nothing of ours")


@operation()
def nouveau_free() -> Commands:
    """modprobe may load nouveau again, and the initial RAM disks that know otherwise forget it."""
    seen = host.get_fact(SetupFact)
    if {MODPROBE, FORGOTTEN} & set(seen.files):
        # Under the other name modprobe does not read it, and a run that is broken off can be told by it.
        aside = f"if [ -f {MODPROBE} ]; then touch {MODPROBE}; mv {MODPROBE} {FORGOTTEN}; fi\n"
        yield from long_work("nvidia-initramfs", f"{aside}{_make_initrds(seen.initrds, FORGOTTEN)}rm {FORGOTTEN}\n")
    host.noop("nouveau is not off")


def _outdated(seen: Setup, wanted: Mapping[str, str]) -> list[str]:
    return [path for path, text in wanted.items() if seen.files.get(path) != sha256(text.encode()).hexdigest()]
