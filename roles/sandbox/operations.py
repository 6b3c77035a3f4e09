"""Make this computer match the layout; each operation decides from what it sees when its turn comes."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Generator, Sequence

from pyinfra import host, state
from pyinfra.api import FunctionCommand, StringCommand, operation
from pyinfra.api.host import Host
from pyinfra.api.state import State

from roles.base.remote import connection_arguments, say
from roles.sandbox import apt, decisions, seen
from roles.sandbox.decisions import Step
from roles.sandbox.facts import AnsweringFact, ImageFact, MirrorReachedFact, SandboxFact, answers
from roles.sandbox.inputs import MIRROR, MODEL, SOURCES
from roles.sandbox.layout import BASE_INSIDE, COMPILER_CACHE_INSIDE, Layout, Machine, description_text
from roles.sandbox.render import nspawn_command, render
from roles.sandbox.seen import Remains, Seen

BASE_PACKAGES = (
    "systemd",
    "systemd-sysv",
    "dbus",
    "openssh-server",
    "sudo",
    "iproute2",
    "pciutils",
    "ca-certificates",
    "procps",
)
PATIENCE = 40
"""Half seconds that a machine has to power off before it is killed."""
BOOT_SECONDS = 90
"""Seconds that a machine has to answer; 5 to 10 are usual."""

Commands = Generator[StringCommand | FunctionCommand | str, None, None]


def _look(layout: Layout) -> Seen:
    found = host.get_fact(SandboxFact, layout=layout)
    assert isinstance(found, Seen)
    return found


def _shown(script: str) -> FunctionCommand:
    """A script of minutes, whose output is shown while it runs."""
    return FunctionCommand(_run_shown, (script,), {})


def _run_shown(state: State, host: Host, script: str) -> bool:
    ok, _ = host.run_shell_command(script, print_output=True, **connection_arguments(state, host))
    return ok


def _fail(sentence: str) -> str:
    return f"echo {shlex.quote(sentence)} >&2; exit 1"


@operation()
def packages(layout: Layout) -> Commands:
    """Install the Debian packages whose commands are missing."""
    missing = _look(layout).missing_packages
    if not missing:
        host.noop("all packages are installed")
        return
    yield "apt-get update --quiet --quiet"
    yield f"DEBIAN_FRONTEND=noninteractive apt-get install --yes --quiet --quiet --no-install-recommends {' '.join(missing)}"


@operation()
def described(layout: Layout) -> Commands:
    """``machines.json``, the first thing in the state folder and what marks it as ours."""
    text = description_text(layout)
    if _look(layout).description.strip() == text.strip():
        host.noop("machines.json is up to date")
        return
    path = shlex.quote(f"{layout.state}/machines.json")
    yield f"mkdir -p {shlex.quote(layout.state)}/machines"
    yield StringCommand(f"printf %s {shlex.quote(text)} >{path}.new && mv {path}.new {path}")


@operation()
def mirror(layout: Layout) -> Commands:
    """The git mirror of llama.cpp with the pinned commits."""
    if _look(layout).has_mirror:
        host.noop("the mirror has all commits")
        return
    yield _shown(render("mirror.sh.j2", layout=layout, mirror=MIRROR, sources=SOURCES, python=sys.executable, host=host.name))


@operation()
def model(layout: Layout) -> Commands:
    """The model, checked by its SHA-256 before it takes its name."""
    if _look(layout).has_model:
        host.noop("the model is there")
        return
    yield _shown(render("model.sh.j2", layout=layout, model=MODEL, python=sys.executable, host=host.name))


@operation()
def base(layout: Layout, suite: str) -> Commands:
    """The root file system that the machines of a suite stand on."""
    found = _look(layout)
    if suite in found.bases:
        host.noop(f"the base of {suite} is there")
        return
    yield _shown(
        render(
            "base.sh.j2",
            layout=layout,
            suite=suite,
            packages=BASE_PACKAGES,
            apt_options=found.apt_options,
            mirror=_mirrors(found).main,
        )
    )


@operation()
def keys(layout: Layout) -> Commands:
    """The key that lets this computer in, the machines' own keys, and the known_hosts file that says so."""
    found = _look(layout)
    missing = decisions.missing_keys(found, layout)
    if not missing and found.ssh.get("known_hosts") == decisions.known_hosts(found, layout):
        host.noop("all keys are there")
        return
    yield f"install --directory --mode=700 {shlex.quote(layout.ssh)}"
    for path in missing:
        comment = shlex.quote(f"gpuquilt sandbox {layout.prefix}")
        yield f"rm -f {path} {path}.pub && ssh-keygen -q -t ed25519 -N '' -C {comment} -f {path}"
    lines = " && ".join(
        f"echo \"{machine.address},{machine.name} $(cut -d ' ' -f 1,2 {layout.host_key(machine)}.pub)\""
        for machine in layout.machines
    )
    yield StringCommand(f"{{ {lines}; }} >{layout.known_hosts}.new && mv {layout.known_hosts}.new {layout.known_hosts}")


@operation()
def kernel_settings(layout: Layout) -> Commands:
    """Raise the kernel settings that are too low; what they were is remembered for the last sandbox to put back."""
    found = _look(layout)
    low = {key: least for key, least in seen.KERNEL.items() if found.kernel.get(key, 0) < least}
    if not low:
        host.noop("routing is on and there are watches enough")
        return
    yield f"mkdir -p {seen.REMEMBERED}"
    for key, least in low.items():
        path = f"/proc/sys/{key.replace('.', '/')}"
        yield f"cat {path} >{seen.REMEMBERED}/{key} && echo {least} >{path}"


@operation()
def bridge(layout: Layout) -> Commands:
    """The bridge that all machines are plugged into, with this computer's address on it."""
    found = _look(layout)
    if decisions.bridge_is_up(found, layout):
        host.noop(f"{layout.bridge} is up")
        return
    if not found.has_bridge:
        yield f"ip link add {layout.bridge} type bridge"
    yield f"ip address replace {layout.gateway}/{layout.subnet.prefixlen} dev {layout.bridge}"
    yield f"ip link set {layout.bridge} up"


@operation()
def table(layout: Layout) -> Commands:
    """The nftables table through which the machines reach the package mirror."""
    wanted = render("table.nft.j2", layout=layout)
    if decisions.table_is_complete(_look(layout), wanted):
        host.noop(f"the table {layout.table} is complete")
        return
    anew = f"table ip {layout.table}\ndelete table ip {layout.table}\n{wanted}"
    yield StringCommand(f"printf %s {shlex.quote(anew)} | nft --file -")


@operation()
def machine_runs(layout: Layout, machine: Machine, nameservers: Sequence[str]) -> Commands:
    """A machine is there, runs, and is plugged into the bridge."""
    found = _look(layout)
    todo = decisions.steps(found, machine)
    if not todo:
        host.noop(f"{machine.name} runs")
        return
    for step in todo:
        if step is Step.STOP:
            yield _stop(found.remains_of([machine.name]))
        elif step is Step.MAKE:
            yield _make(found, layout, machine, nameservers)
        elif step is Step.START:
            yield _start(found, layout, machine)
        else:
            yield f"ip link set {machine.interface} master {layout.bridge} up"


def _make(found: Seen, layout: Layout, machine: Machine, nameservers: Sequence[str]) -> StringCommand:
    return StringCommand(
        render(
            "make.sh.j2",
            layout=layout,
            machine=machine,
            nameservers=nameservers,
            sources=apt.guest_sources(_mirrors(found), machine.suite),
            apt_options=found.apt_options,
            compiler_cache=COMPILER_CACHE_INSIDE,
        )
    )


def _start(found: Seen, layout: Layout, machine: Machine) -> StringCommand:
    return StringCommand(
        render(
            "start.sh.j2",
            layout=layout,
            machine=machine,
            booted_with_systemd=found.booted_with_systemd,
            hierarchies=seen.HIERARCHIES,
            command=nspawn_command(layout, machine),
        )
    )


def _stop(remains: Remains) -> StringCommand:
    return StringCommand(
        render(
            "stop.sh.j2",
            processes=remains.processes,
            groups=remains.groups,
            cables=remains.cables,
            patience=PATIENCE,
            host=host.name,
        )
    )


def _mirrors(found: Seen) -> apt.Mirrors:
    assert found.mirrors, "a computer without a mirror was refused before"
    return found.mirrors


@operation()
def machines_answer(layout: Layout) -> Commands:
    """All machines answer on their SSH port: waits for those that are still booting."""
    answering = host.get_fact(AnsweringFact, machines=layout.machines)
    silent = [machine for machine in layout.machines if machine.name not in answering]
    if not silent:
        host.noop("all machines answer")
        return
    for machine in silent:
        sentence = (
            f"{machine.name} does not answer on {machine.address}:22 after {BOOT_SECONDS} s: see its console in"
            f" {machine.folder}/console.log (or journalctl -u {machine.name})."
        )
        yield StringCommand(
            f"for second in $(seq {BOOT_SECONDS}); do {answers(machine)} && exit 0; sleep 1; done; {_fail(sentence)}"
        )


@operation()
def mirror_is_reached(layout: Layout) -> Commands:
    """All machines reach the package mirror through this computer."""
    found = _look(layout)
    address, port = apt.probe_address(_mirrors(found), found.apt_options)
    processes = [(running.name, running.pid) for running in found.running]
    reached = host.get_fact(MirrorReachedFact, processes=processes, address=address, port=port)
    cut_off = [machine.name for machine in layout.machines if machine.name not in reached]
    if not cut_off:
        host.noop("all machines reach the package mirror")
        return
    yield _fail(
        f"{', '.join(cut_off)}: the package mirror {address}:{port} cannot be reached through this computer: look if it is"
        f" reached from here, and if a firewall (Docker's, for one) drops what is forwarded from {layout.bridge}"
        f" (nft list ruleset; iptables -S FORWARD)."
    )


@operation()
def powered_off(layout: Layout) -> Commands:
    """Nothing of a machine of ours runs."""
    found = _look(layout)
    remains = found.remains_of(found.names)
    if not remains:
        host.noop("no machine runs")
        return
    yield _stop(remains)


@operation()
def network_gone(layout: Layout) -> Commands:
    """No bridge or rule of ours is left."""
    found = _look(layout)
    if not (found.has_bridge or found.table):
        host.noop("there is no bridge and no rule")
        return
    if found.has_bridge:
        yield f"ip link delete {layout.bridge}"
    if found.table:
        yield f"nft delete table ip {layout.table}"


@operation()
def kernel_settings_back(layout: Layout) -> Commands:
    """The last sandbox to go puts the kernel settings back to what they were before the first.

    Not where somebody else may rely on them by now: on a bridge, containers and virtual machines need routing as well.
    """
    found = _look(layout)
    if not found.remembered or found.other_sandboxes:
        host.noop("nothing has to be put back")
        return
    if found.other_bridges:
        if state.is_executing:
            say(host, decisions.kernel_settings_stay(found))
        host.noop("another bridge may need the kernel settings")
        return
    for key, value in found.remembered.items():
        yield f"echo {value} >/proc/sys/{key.replace('.', '/')} && rm {seen.REMEMBERED}/{key}"
    yield f"rmdir {seen.REMEMBERED}"


@operation()
def folders_gone(layout: Layout) -> Commands:
    """No mount or file of a machine is left; machines.json, which marks the folder as ours, goes last."""
    found = _look(layout)
    entries = found.state_entries & decisions.STATE_ENTRIES
    if not (found.mounts or entries):
        host.noop("nothing is left")
        return
    for mount in reversed(found.mounts):
        yield f"umount {shlex.quote(mount)}"
    for entry in sorted(entries, key=lambda entry: entry == "machines.json"):
        yield f"rm -rf --one-file-system {shlex.quote(layout.state)}/{entry}"
    yield f"rmdir --ignore-fail-on-non-empty {shlex.quote(layout.state)}"


@operation()
def cache_gone(layout: Layout) -> Commands:
    """What was downloaded is removed, unless another sandbox stands on it."""
    found = _look(layout)
    entries = sorted(found.cache_entries & decisions.CACHE_ENTRIES)
    if not entries:
        host.noop("the cache is empty")
        return
    if found.cache_users:
        yield _fail(
            f"{layout.cache} stays, because another sandbox stands on it ({found.cache_users[0]}): remove that one first."
        )
        return
    for entry in entries:
        yield f"rm -rf --one-file-system {shlex.quote(layout.cache)}/{entry}"
    yield f"rmdir --ignore-fail-on-non-empty {shlex.quote(layout.cache)}"


@operation()
def base_image(image: str) -> Commands:
    """In a machine: the container image that its builds begin with, out of the Debian that the machine stands on.

    :param image: its name, which no registry has to know
    """
    if host.get_fact(ImageFact, image=image):
        host.noop(f"the image {image} is there")
    else:
        yield StringCommand(render("image.sh.j2", image=image, base=BASE_INSIDE))
