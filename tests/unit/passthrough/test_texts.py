"""The kernel's arguments: ours are put in and taken out, and nobody else's are touched."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roles.cluster.passthrough import Function
from roles.cluster.provision import MachinePlan
from roles.passthrough.texts import drop_in, merged, without_boot_loader, words

CARD = Function("0000:0e:00.0", "10de", "1b06", 14, "vfio-pci")
SOUND = Function("0000:0e:00.1", "10de", "10ef", 14, "vfio-pci")
WANTED = ("gpuquilt.passthrough=0000:0e:00.0/10de:1b06,0000:0e:00.1/10de:10ef", "intel_iommu=on", "iommu=pt")
OURS = " ".join(WANTED)
OTHERS = ("gpuquilt.passthrough=0000:01:00.0/1002:7550", "intel_iommu=on", "iommu=pt")


def test_addresses_and_ids_go_together_whatever_their_order() -> None:
    assert words(MachinePlan(passthrough=(SOUND, CARD))) == WANTED


def test_a_card_that_is_not_seen_stays_in_the_argument() -> None:
    plan = MachinePlan(passthrough=(CARD,), passthrough_absent=("0000:01:00.0/1002:7550", CARD.entry))
    assert words(plan)[0] == "gpuquilt.passthrough=0000:01:00.0/1002:7550,0000:0e:00.0/10de:1b06"


def test_nothing_is_wanted_where_nothing_is_passed_through() -> None:
    assert words(MachinePlan()) == ()


@pytest.mark.parametrize(
    ("before", "wanted", "after"),
    [
        ("", WANTED, OURS),
        ("root=ZFS=rpool/ROOT/pve-1 boot=zfs", WANTED, f"root=ZFS=rpool/ROOT/pve-1 boot=zfs {OURS}"),
        (f"root=/dev/sda1 {OURS} quiet\n", WANTED, f"root=/dev/sda1 {OURS} quiet"),
        (f"root=/dev/sda1 {' '.join(OTHERS)} quiet", WANTED, f"root=/dev/sda1 {OURS} quiet"),
        (f"root=/dev/sda1 {OURS} quiet", (), "root=/dev/sda1 quiet"),
        (f"{OURS}", (), ""),
        ("quiet intel_iommu=on", WANTED, f"quiet intel_iommu=on {WANTED[0]} iommu=pt"),
        (f"quiet intel_iommu=on {WANTED[0]} iommu=pt", (), "quiet intel_iommu=on"),
        ("quiet intel_iommu=on iommu=pt", (), "quiet intel_iommu=on iommu=pt"),
    ],
)
def test_ours_are_put_in_and_taken_out(before: str, wanted: tuple[str, ...], after: str) -> None:
    assert merged(before, wanted) == after
    assert merged(after, wanted) == after


WORDS = st.lists(st.sampled_from(["quiet", "intel_iommu=on", "iommu=pt", "root=/dev/sda1", "vfio-pci.ids=1:2", "iommu=soft"]))


@given(WORDS, st.sampled_from([WANTED, OTHERS]))
def test_what_somebody_else_wrote_comes_through_unchanged(foreign: list[str], wanted: tuple[str, ...]) -> None:
    before = " ".join(foreign)
    there = merged(before, wanted)
    assert set(wanted) <= set(there.split())
    assert merged(there, wanted) == there
    assert merged(there, ()) == before


def test_what_the_boot_loader_adds_is_no_argument_of_the_user() -> None:
    assert without_boot_loader("initrd=\\EFI\\x BOOT_IMAGE=/boot/vmlinuz root=/dev/sda1 rw") == "root=/dev/sda1 rw"


def test_grub_reads_the_drop_in_after_the_users_own_arguments(tmp_path: Path) -> None:
    path = tmp_path / "gpuquilt.cfg"
    path.write_text(drop_in(WANTED))
    script = f'GRUB_CMDLINE_LINUX="quiet"; . {path}; printf %s "$GRUB_CMDLINE_LINUX"'
    ended = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    assert ended.stdout == f"quiet {OURS}"
