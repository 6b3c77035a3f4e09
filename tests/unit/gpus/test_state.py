"""How it stands with NVIDIA's driver: each state, and which comes first where several could be told."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roles.gpus.catalog import load
from roles.gpus.driver import Drivers, Nvidia, NvidiaGpu
from roles.gpus.gpu import declared
from roles.gpus.link import Link, Verdict
from roles.gpus.state import Kind, State, state
from tests.unit.cluster.examples import BLACKWELL, PASCAL, TURING, gpus

KERNEL = "6.12.57+deb13-amd64"
VERSION = "550.163.01"
DKMS = {"nvidia-kernel-dkms": "550.163.01-2", "libcuda1": "550.163.01-2"}
PREBUILT = {"linux-modules-nvidia-550-server-generic": "6.8.0-90.91", "nvidia-utils-550-server": "550.163.01-0ubuntu0.24.04.1"}
CATALOG = load()
(SEEN,) = gpus(PASCAL)
DECLARED = declared("GP102", CATALOG)
DEAD = replace(SEEN, link=Link(Verdict.UNREACHABLE, "0000:01:00.0 reads all ones"))
HELD = replace(SEEN, driver="nouveau")
GOOD = Nvidia(VERSION, "proprietary", VERSION, "proprietary", dkms=True, packages=DKMS, gpus={"0000:01:00.0": NvidiaGpu()})
NOT_LOADED = replace(GOOD, loaded="", loaded_flavour=None, gpus={})
NOT_BUILT = replace(NOT_LOADED, on_disk="", on_disk_flavour=None, dkms=False)
SILENT = replace(GOOD, gpus={}, problem="No devices were found")
LOST = "NVRM: Xid (PCI:0000:01:00): 79, pid, name=llama-server, GPU has fallen off the bus."
UNSIGNED = "Loading of unsigned module is rejected"


def kind(nvidia: Nvidia, gpu: Any = SEEN, **host: Any) -> Kind:
    return found(nvidia, gpu, **host).kind


def found(nvidia: Nvidia, gpu: Any = SEEN, **host: Any) -> State:
    kernels = {"kernel": KERNEL, "next_kernel": KERNEL}
    return state(Drivers(nvidia=nvidia, **kernels | host), [gpu], CATALOG)


@pytest.mark.parametrize(
    ("nvidia", "gpu", "host", "expected"),
    [
        (GOOD, SEEN, {}, Kind.LOADED),
        (GOOD, DECLARED, {}, Kind.LOADED),
        (Nvidia(), SEEN, {}, Kind.NOT_INSTALLED),
        (Nvidia(packages={"libcuda1": "550.163.01-2"}), SEEN, {}, Kind.NOT_INSTALLED),
        (NOT_LOADED, SEEN, {}, Kind.REBOOT_OWED),
        (NOT_LOADED, DECLARED, {}, Kind.INSTALLED),
        (NOT_LOADED, HELD, {}, Kind.NOUVEAU),
        (NOT_BUILT, SEEN, {}, Kind.NOT_BUILT),
        (SILENT, SEEN, {}, Kind.SILENT),
        (replace(GOOD, problem="WARNING: infoROM is corrupted at gpu 0000:01:00.0"), SEEN, {}, Kind.LOADED),
        (replace(GOOD, on_disk="550.90.07"), SEEN, {}, Kind.REBOOT_OWED),
        (replace(SILENT, problem="Driver/library version mismatch"), SEEN, {}, Kind.MISMATCH),
        (replace(GOOD, gpus={}, loaded="550.90.07"), SEEN, {}, Kind.MISMATCH),
        (NOT_LOADED, SEEN, {"secure_boot": True}, Kind.SECURE_BOOT),
        (NOT_LOADED, SEEN, {"secure_boot": True, "own_key_enrolled": True}, Kind.REBOOT_OWED),
        (NOT_LOADED, SEEN, {"secure_boot": True, "own_key_enrolled": True, "log": (UNSIGNED,)}, Kind.SECURE_BOOT),
        (replace(NOT_LOADED, loaded_flavour="open", on_disk_flavour="open"), SEEN, {}, Kind.WRONG_FLAVOUR),
        (replace(GOOD, on_disk="595.71.05"), SEEN, {}, Kind.WRONG_BRANCH),
        (GOOD, DEAD, {}, Kind.UNREACHABLE),
        (SILENT, SEEN, {"log": (LOST,)}, Kind.UNREACHABLE),
    ],
)
def test_each_state_is_told(nvidia: Nvidia, gpu: Any, host: dict[str, Any], expected: Kind) -> None:
    assert kind(nvidia, gpu, **host) is expected


@pytest.mark.parametrize(
    ("nvidia", "gpu", "host", "first"),
    [
        # With a dead card nothing else helps.
        (Nvidia(), DEAD, {}, Kind.UNREACHABLE),
        (NOT_BUILT, DEAD, {"secure_boot": True}, Kind.UNREACHABLE),
        # A driver that is to go is neither signed nor built.
        (replace(NOT_LOADED, on_disk_flavour="open"), SEEN, {"secure_boot": True}, Kind.WRONG_FLAVOUR),
        (replace(NOT_BUILT, packages={"nvidia-open-kernel-dkms": "550.163.01-2"}), SEEN, {}, Kind.WRONG_FLAVOUR),
        # The kernel would refuse what is built, and a reboot would not load it.
        (NOT_BUILT, HELD, {"secure_boot": True}, Kind.SECURE_BOOT),
        (NOT_LOADED, HELD, {"secure_boot": True}, Kind.SECURE_BOOT),
        (NOT_LOADED, DECLARED, {"secure_boot": True}, Kind.SECURE_BOOT),
        # Without a module a reboot changes nothing, and takes away what runs.
        (NOT_BUILT, HELD, {}, Kind.NOT_BUILT),
        (NOT_BUILT, DECLARED, {}, Kind.NOT_BUILT),
        (replace(GOOD, on_disk="", dkms=False), SEEN, {}, Kind.NOT_BUILT),
        (replace(SILENT, on_disk="", loaded="550.90.07"), SEEN, {}, Kind.NOT_BUILT),
        # What was wrong is mended already, and only the boot is missing.
        (replace(GOOD, loaded_flavour="open", gpus={}, problem="No devices were found"), SEEN, {}, Kind.REBOOT_OWED),
    ],
)
def test_what_stands_in_the_way_of_the_rest_comes_first(nvidia: Nvidia, gpu: Any, host: dict[str, Any], first: Kind) -> None:
    assert kind(nvidia, gpu, **host) is first


@pytest.mark.parametrize(
    ("nvidia", "host"),
    [
        (GOOD, {"log": (LOST,)}),
        (replace(GOOD, gpus={}), {"log": (LOST,)}),
        (GOOD, {"log": (UNSIGNED,)}),
        (SILENT, {"log": (LOST.replace(":01:00", ":02:00"),)}),
    ],
    ids=["it answers", "it sleeps", "it is loaded", "it is another card"],
)
def test_what_the_kernel_said_earlier_and_is_over_is_not_told(nvidia: Nvidia, host: dict[str, Any]) -> None:
    assert kind(nvidia, **host) in (Kind.LOADED, Kind.SILENT)


def test_a_refusal_by_the_kernel_says_nothing_of_a_driver_that_nobody_loads() -> None:
    """The kernel does not name the module that it refused; without a card it is not this one."""
    assert kind(NOT_LOADED, DECLARED, log=(UNSIGNED,)) is Kind.INSTALLED


@pytest.mark.parametrize(
    ("nvidia", "expected"),
    [
        (replace(GOOD, on_disk=""), Kind.LOADED),
        (replace(NOT_BUILT, packages=DKMS), Kind.NOT_BUILT),
    ],
)
def test_a_container_has_no_kernel_to_build_for(nvidia: Nvidia, expected: Kind) -> None:
    """The driver that it is shown is its host's; where a card is there and no driver runs, the kernel that runs is meant."""
    assert kind(nvidia, kernel="6.18.44", next_kernel="") is expected
    assert kind(NOT_BUILT, DECLARED, kernel="6.18.44", next_kernel="") is Kind.INSTALLED


@pytest.mark.parametrize(
    ("nvidia", "host", "words"),
    [
        (NOT_BUILT, {}, "since its headers are missing: install them, and let DKMS build it"),
        (NOT_BUILT, {"headers": True}, "see /var/lib/dkms/nvidia*/*/build/make.log"),
        (
            replace(NOT_BUILT, dkms=None, packages=PREBUILT),
            {},
            "install the package of its modules",
        ),
        (Nvidia(VERSION, "proprietary"), {"kernel": "6.12.48", "next_kernel": KERNEL}, "run its installer for that kernel"),
    ],
)
def test_a_module_that_is_missing_is_built_in_the_way_in_which_it_came(nvidia: Nvidia, host: dict[str, Any], words: str) -> None:
    told = found(nvidia, **host)
    assert told.kind is Kind.NOT_BUILT
    assert words in told.sentence


def test_a_driver_that_was_removed_while_it_runs_is_not_installed() -> None:
    told = found(Nvidia(VERSION, "proprietary"))
    assert (told.kind, told.reboot) == (Kind.NOT_INSTALLED, False)
    assert told.sentence == (
        "NVIDIA driver 550.163.01 is loaded and not installed any more: install one (deploys/prepare.py does that)."
    )


def test_a_reboot_does_not_mend_libraries_that_differ_from_what_it_loads() -> None:
    libraries = replace(GOOD, gpus={}, packages={"nvidia-kernel-dkms": "550.163.01-2", "libcuda1": "550.200.01-1"})
    told = found(libraries)
    assert (told.kind, told.reboot) == (Kind.MISMATCH, False)
    assert "the next boot loads 550.163.01: bring its packages to one version" in told.sentence


def test_the_module_of_the_other_flavour_is_asked_for() -> None:
    (new,) = gpus(BLACKWELL)
    told = found(Nvidia("580.95.05", "proprietary", "580.95.05", "proprietary"), new)
    assert told.sentence == (
        "NVIDIA driver 580.95.05 is installed with the proprietary module, and 0000:05:00.0 needs the open one: put the open one"
        " there (deploys/prepare.py does that)."
    )


def test_a_card_that_this_version_does_not_support_by_the_kernels_word() -> None:
    """The catalog knows branches, and no versions within them."""
    (card,) = gpus(TURING)
    log = (
        "NVRM: The NVIDIA GPU 0000:02:00.0 (PCI ID: 10de:2182)",
        "NVRM: installed in this system is not supported by the",
        "NVRM: NVIDIA 520.56.06 driver release.",
    )
    old = Nvidia("520.56.06", "proprietary", "520.56.06", "proprietary", problem="No devices were found")
    assert kind(old, card, log=log) is Kind.WRONG_BRANCH
    assert kind(replace(old, on_disk="550.163.01"), card, log=log) is Kind.REBOOT_OWED


def test_who_manages_the_driver_is_not_told_that_we_do() -> None:
    drivers = Drivers(kernel=KERNEL, nvidia=Nvidia())
    assert state(drivers, [SEEN], CATALOG, managed=False).sentence == "NVIDIA's driver is not installed: install it."


VERSIONS = st.sampled_from(["", "470.256.02", "550.163.01", "580.95.05", "620.10", "strange"])
FLAVOURS = st.sampled_from([None, "open", "proprietary"])
WORDS = st.text(max_size=20) | st.sampled_from([LOST, UNSIGNED, "NVRM: The NVIDIA GPU 0000:01:00.0 (PCI ID: 10de:1b06)"])


@given(
    st.builds(
        Drivers,
        next_kernel=st.sampled_from(["", KERNEL]),
        log=st.lists(WORDS, max_size=4).map(tuple),
        secure_boot=st.sampled_from([None, False, True]),
        nvidia=st.builds(Nvidia, VERSIONS, FLAVOURS, VERSIONS, FLAVOURS, packages=st.dictionaries(WORDS, WORDS), problem=WORDS),
    ),
    st.lists(st.sampled_from([SEEN, HELD, DEAD, DECLARED]), max_size=3),
    st.booleans(),
)
def test_every_state_is_one_sentence(drivers: Drivers, cards: list[Any], managed: bool) -> None:
    told = state(drivers, cards, CATALOG, managed)
    assert told.sentence.endswith(".")
    assert "None" not in told.sentence
    assert not told.reboot or "reboot" in told.sentence
