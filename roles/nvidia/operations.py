"""Having NVIDIA's driver on a host, and taking it back."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from hashlib import sha256
from posixpath import dirname

from pyinfra import host
from pyinfra.api import FunctionCommand, StringCommand, operation
from pyinfra.api.host import Host
from pyinfra.api.state import State

from roles.base import apt
from roles.base.facts import MachineFact, MissingPackagesFact
from roles.base.operations import Commands, Judge, components, kept, long_work, repository
from roles.base.remote import complain, run
from roles.cluster.driver import Driver
from roles.gpus.catalog import ToolkitOffer
from roles.nvidia import sources as where
from roles.nvidia.facts import SetupFact
from roles.nvidia.parts import TOOLS, leftovers, origin
from roles.nvidia.settings import Settings
from roles.nvidia.setup import Setup
from roles.nvidia.texts import FILES, FORGOTTEN, MODPROBE, UNIT, UNIT_FILE, texts


@operation()
def keep_to(driver: Driver) -> Commands:
    """apt, unattended upgrades and modprobe keep to this driver from now on; nothing is installed or started."""
    seen = host.get_fact(SetupFact)
    wanted = texts(driver)
    outdated = _outdated(seen, wanted)
    for path in outdated:
        yield _write(path, wanted[path])
    if UNIT_FILE in outdated or seen.reload_owed:
        yield StringCommand("systemctl daemon-reload")
    host.noop("apt and modprobe keep to it")


@operation()
def sources(driver: Driver, settings: Settings) -> Commands:
    """The host can get the packages; of a driver that stays, only where one is missing."""
    if driver.source == "loaded" and not host.get_fact(MissingPackagesFact, names=list(driver.packages)):
        host.noop("nothing is to be had")
        return
    machine = host.get_fact(MachineFact)
    if origin(driver) == "nvidia":
        wanted = where.repository(settings, f"{machine.os_id}{machine.os_version}")
        yield from repository._inner(repository=wanted)
    if names := where.components(driver, machine.os_id):
        yield from components._inner(names=names)


@operation()
def toolkit_source(offer: ToolkitOffer, settings: Settings) -> Commands:
    """The host can get the toolkit."""
    if not host.get_fact(MissingPackagesFact, names=list(offer.packages)):
        host.noop("nothing is to be had")
        return
    machine = host.get_fact(MachineFact)
    if offer.origin == "nvidia":
        wanted = where.repository(settings, f"{machine.os_id}{machine.os_version}")
        yield from repository._inner(repository=wanted)
    if names := where.COMPONENTS.get(machine.os_id) if offer.origin == "distribution" else None:
        yield from components._inner(names=list(names))


@operation()
def no_other_driver(driver: Driver, judge: Judge) -> Commands:
    """Parts of another branch or of the other module go, once it is known that the new driver can be had without them.

    What runs goes on with the module that is loaded until the reboot.
    """
    old = leftovers(host.get_fact(SetupFact).packages, driver) if driver.source in ("distribution", "nvidia") else []
    if not old:
        host.noop("no part of another driver is there")
        return
    yield from long_work("apt", apt.script(host.name, "refresh"))
    yield FunctionCommand(_may_go, (old, list(driver.packages), judge), {})
    names = shlex.join(old)
    script = apt.script(host.name, ":") + f'purge_packages nvidia-old "$(simulated purge {names})" {names}\n'
    yield from long_work("install-nvidia-old", script)


def _may_go(state: State, host: Host, old: list[str], new: list[str], judge: Judge) -> bool:
    """What both halves of the exchange would do is read before the first of them."""
    removal = run(state, host, f"LC_ALL=C apt-get --simulate purge {shlex.join(old)}", timeout=300)
    installation = run(state, host, _as_if_gone(old, apt.install_command(new, moved=False)), timeout=300)
    for answer in (removal, installation):
        if not answer.ok:
            complain(host, f"{host.name}: {apt.simulation_failed(answer.output, answer.errors)}")
            return False
    changes = apt.changes(installation.output)
    sentences = [*_lost(removal.output, old), *judge(changes), *apt.unwanted_removals(changes, kept)]
    for sentence in sentences:
        complain(host, f"{host.name}: {sentence}")
    return not sentences


def _lost(removal: Sequence[str], old: Sequence[str]) -> list[str]:
    may_go = {*old, *TOOLS}
    lost = [change.package for change in apt.changes(removal) if change.action == "remove" and change.package not in may_go]
    if not lost:
        return []
    return [
        f"{', '.join(lost)} would go with the old NVIDIA driver, so nothing was removed: remove them yourself if you can do"
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
        yield StringCommand(f"systemctl start {unit}")
    host.noop("they are there")


@operation()
def nothing_kept() -> Commands:
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


def _write(path: str, text: str) -> StringCommand:
    return StringCommand(f"mkdir -p {dirname(path)} && printf %s {shlex.quote(text)} >{path}.new && mv {path}.new {path}")
