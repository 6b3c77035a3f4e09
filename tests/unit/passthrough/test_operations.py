"""What is done to a host: only what it does not show yet, in an order that any run can be broken off in."""

from __future__ import annotations

import shlex
from dataclasses import replace
from hashlib import sha256
from types import SimpleNamespace
from typing import Any

import pytest
from pyinfra.context import ctx_host, ctx_inventory, ctx_state
from pyinfra_testing.util import FakeState, create_host  # type: ignore[import-untyped]

from roles.cluster.passthrough import Function
from roles.cluster.provision import MachinePlan
from roles.gpus.pci import Device
from roles.passthrough import operations
from roles.passthrough.boot import REFRESHED, Boot
from roles.passthrough.texts import DROP_IN, HOOK, KERNEL_COMMAND_LINE, SCRIPT, drop_in, scripts, words

CARD = Function("0000:0e:00.0", "10de", "1b06", 14, "nouveau")
PLAN = MachinePlan(passthrough=(CARD,))
OTHER_PLAN = MachinePlan(passthrough=(replace(CARD, address="0000:0f:00.0"),))
WANTED = words(PLAN)
OURS = " ".join(WANTED)
ENTRY = "/boot/vmlinuz-6.1.0-9-amd64 root=/dev/sda1 ro"
INITRAMFS, BOOT_LOADER = "gpuquilt-initramfs", "gpuquilt-boot-loader"

GRUB = Boot(initramfs_tools=True, initrds={"6.1.0-9-amd64": False}, loader="grub", entries=(ENTRY,), running=f"{ENTRY} quiet")
SYSTEMD_BOOT = replace(GRUB, loader="systemd-boot", entries=(), running="initrd=\\x root=/dev/sda1 quiet")
PROXMOX = replace(SYSTEMD_BOOT, proxmox=True, command_line="root=ZFS=rpool/ROOT/pve-1 boot=zfs")


def digests(texts: dict[str, str]) -> dict[str, str]:
    return {path: sha256(text.encode()).hexdigest() for path, text in texts.items()}


SCRIPTS = digests(scripts())
MADE = {"6.1.0-9-amd64": True}
GRUB_DONE = replace(GRUB, initrds=MADE, files={**SCRIPTS, **digests({DROP_IN: drop_in(WANTED)})}, entries=(f"{ENTRY} {OURS}",))
SYSTEMD_BOOT_DONE = replace(
    SYSTEMD_BOOT, initrds=MADE, files=SCRIPTS, command_line=f"root=/dev/sda1 quiet {OURS}", refreshed=OURS
)


def commands(operation: Any, seen: Any, fact: str = "facts.BootFact", **arguments: Any) -> list[Any]:
    """What an operation yields on a host that shows this: shell commands, and of long work the unit and its script."""
    state = FakeState()
    host = create_host(state, facts={fact: seen})
    with ctx_state.use(state), ctx_host.use(host), ctx_inventory.use([]):
        found = list(operation._inner(**arguments))
    return [str(command) if not hasattr(command, "function") else command.args[:2] for command in found]


def settle(seen: Boot, machine: MachinePlan = PLAN) -> list[Any]:
    return commands(operations.settle, seen, machine=machine)


def test_grub_is_told_after_the_initramfs_can_act_on_it() -> None:
    script, hook, (unit, made), told, (loader, refreshed) = settle(GRUB)
    assert shlex.quote(scripts()[SCRIPT]) in script and f"chmod 755 {SCRIPT}.new && mv {SCRIPT}.new {SCRIPT}" in script
    assert shlex.quote(scripts()[HOOK]) in hook and f"mv {HOOK}.new {HOOK}" in hook
    assert (unit, made.split("\n")[1]) == (INITRAMFS, "update-initramfs -u -k 6.1.0-9-amd64")
    assert shlex.quote(drop_in(WANTED)) in told and f"mv {DROP_IN}.new {DROP_IN}" in told
    assert (loader, refreshed.split()) == (BOOT_LOADER, ["set", "-e", "update-grub"])


@pytest.mark.parametrize("done", [GRUB_DONE, SYSTEMD_BOOT_DONE, replace(SYSTEMD_BOOT_DONE, proxmox=True)])
def test_a_second_run_does_nothing(done: Boot) -> None:
    assert settle(done) == []


@pytest.mark.parametrize(
    ("broken", "units"),
    [
        (replace(GRUB_DONE, initrds={"6.1.0-9-amd64": False}), [INITRAMFS]),
        (replace(GRUB_DONE, initrds={"6.1.0-8-amd64": False, "6.1.0-9-amd64": True}), [INITRAMFS]),
        (replace(GRUB_DONE, entries=(ENTRY,)), [BOOT_LOADER]),
        (replace(GRUB_DONE, entries=(f"{ENTRY} {OURS}", ENTRY)), [BOOT_LOADER]),
        (replace(GRUB_DONE, files={**GRUB_DONE.files, HOOK: "damaged"}), [INITRAMFS]),
        (replace(SYSTEMD_BOOT_DONE, refreshed=""), [BOOT_LOADER]),
        (replace(SYSTEMD_BOOT_DONE, refreshed=None), [BOOT_LOADER]),
    ],
)
def test_a_run_after_a_broken_one_does_what_is_left(broken: Boot, units: list[str]) -> None:
    assert [command[0] for command in settle(broken) if isinstance(command, tuple)] == units


def test_only_old_initramfs_are_made_anew() -> None:
    ((_, script),) = settle(replace(GRUB_DONE, initrds={"6.1.0-8-amd64": False, "6.1.0-9-amd64": True}))
    assert script.split("\n") == ["set -e", "update-initramfs -u -k 6.1.0-8-amd64", ""]


def test_another_address_needs_no_other_initramfs() -> None:
    told, (loader, _) = settle(GRUB_DONE, OTHER_PLAN)
    assert "gpuquilt.passthrough=0000:0f:00.0/10de:1b06" in told
    assert loader == BOOT_LOADER


def test_systemd_boot_keeps_what_the_running_kernel_was_told() -> None:
    *_, marked, told, (loader, script) = settle(SYSTEMD_BOOT)
    assert f"printf %s '' >{REFRESHED}.new" in marked, "before anything of ours is there"
    assert f"printf %s 'root=/dev/sda1 quiet {OURS}\n' >{KERNEL_COMMAND_LINE}.new" in told
    assert loader == BOOT_LOADER
    assert 'kernel-install add "$version" "$kernel" "$initrd"' in script
    assert script.index("kernel-install") < script.index(f"printf %s '{OURS}' >{REFRESHED}.new")


def test_proxmox_has_a_tool_of_its_own() -> None:
    *_, told, (_, script) = settle(PROXMOX)
    assert f"'root=ZFS=rpool/ROOT/pve-1 boot=zfs {OURS}\n'" in told
    assert script.split("\n")[1] == "proxmox-boot-tool refresh"
    *_, told, (_, script) = settle(replace(GRUB, proxmox=True))
    assert DROP_IN in told
    assert script.split("\n")[1] == "proxmox-boot-tool refresh"


def test_what_cannot_be_done_fails_with_the_reason_and_changes_nothing() -> None:
    (command,) = settle(replace(GRUB, loader=""))
    assert "its boot loader is neither GRUB nor systemd-boot" in command
    assert command.endswith("exit 1")


def test_what_is_bound_by_other_means_is_left_alone() -> None:
    bound = MachinePlan(passthrough=(replace(CARD, driver="vfio-pci"),))
    assert settle(replace(GRUB, foreign=True), bound) == []
    assert settle(GRUB, bound) != [], "or it would be bound until the next boot only"


@pytest.mark.parametrize("operation", [operations.take_back, operations.settle])
def test_grub_forgets_and_then_the_scripts_go(operation: Any) -> None:
    arguments = {"machine": MachinePlan()} if operation is operations.settle else {}
    told, (loader, script), scripts_go = commands(operation, GRUB_DONE, **arguments)
    assert told == f"rm -f {DROP_IN}"
    assert (loader, script.split("\n")[1]) == (BOOT_LOADER, "update-grub")
    assert scripts_go == f"rm -f {SCRIPT} {HOOK}"


@pytest.mark.parametrize(
    ("broken", "left"),
    [
        (replace(GRUB_DONE, files=SCRIPTS), 2),
        (replace(GRUB_DONE, files=SCRIPTS, entries=(ENTRY,)), 1),
        (replace(GRUB, files=digests({DROP_IN: drop_in(WANTED)})), 1),
        (replace(SYSTEMD_BOOT_DONE, command_line="root=/dev/sda1 quiet"), 2),
        (replace(SYSTEMD_BOOT, command_line="root=/dev/sda1 quiet", refreshed=""), 1),
        (GRUB, 0),
        (SYSTEMD_BOOT, 0),
        (PROXMOX, 0),
        (replace(GRUB, proxmox=True, entries=(f"{ENTRY} {OURS}",)), 0),
        (Boot(), 0),
    ],
)
def test_taking_back_goes_on_where_it_was_broken_off(broken: Boot, left: int) -> None:
    assert len(commands(operations.take_back, broken)) == left


def test_systemd_boot_gets_the_users_own_words_back() -> None:
    told, (_, script), scripts_go = commands(operations.take_back, SYSTEMD_BOOT_DONE)
    assert f"printf %s 'root=/dev/sda1 quiet\n' >{KERNEL_COMMAND_LINE}.new" in told
    assert script.index("kernel-install") < script.index(f"rm -f {REFRESHED}")
    assert scripts_go == f"rm -f {SCRIPT} {HOOK}"


def test_what_is_as_planned_passes_and_what_is_not_fails_with_the_reason() -> None:
    device = Device("0000:0e:00.0", "0300", vendor_id="10de", device_id="1b06", driver="vfio-pci", iommu_group=14)
    assert commands(operations.verify, [device], fact="facts.PciFact", machine=PLAN) == []
    held = replace(device, driver="nouveau")
    (command,) = commands(operations.verify, [held], fact="facts.PciFact", machine=PLAN)
    assert "nouveau holds 0000:0e:00.0, which was to be bound to vfio-pci" in command


def test_the_virtual_machines_that_are_to_have_gpus_are_named() -> None:
    state = FakeState()
    guests = [SimpleNamespace(name=name, data=data) for name, data in (("head", {}), ("gpu", {"gpus": ["GP102"]}))]
    host = create_host(state, name="virt")
    with ctx_state.use(state), ctx_host.use(host), ctx_inventory.use(guests):
        for guest in guests:
            guest.data["runs_on"] = host.name
        assert operations._guests() == ["gpu"]
        guests[1].data["gpus"] = []
        assert operations._guests() == ["head", "gpu"]
