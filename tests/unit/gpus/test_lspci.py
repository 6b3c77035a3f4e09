"""roles.gpus.lspci: whatever people paste, the devices in it are found, and nothing raises."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roles.gpus.catalog import load
from roles.gpus.gpu import gpus_of
from roles.gpus.lspci import parse
from roles.gpus.pci import Device, LinkState, Port
from tests.unit.gpus.cases import EXPECTED, FOLDER, text

TEXTS = [text(name) for name in EXPECTED]


def said(printed: str) -> list[dict[str, Any]]:
    """What `python -m roles.gpus` prints of a text, file names apart."""
    read: list[dict[str, Any]] = json.loads(json.dumps([asdict(gpu) for gpu in gpus_of(parse(printed), load())]))
    return read


def differences(expected: dict[str, Any], got: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Key → what was expected and what is; more keys may be there."""
    return {key: (value, got.get(key)) for key, value in expected.items() if not matches(value, got.get(key))}


def matches(expected: Any, got: Any) -> bool:
    if isinstance(expected, dict):
        return isinstance(got, dict) and not differences(expected, got)
    return bool(expected == got)


@pytest.mark.parametrize("name", EXPECTED)
def test_a_text_gives_the_expected_gpus(name: str) -> None:
    gpus, expected = said(text(name)), EXPECTED[name]["gpus"]
    assert len(gpus) == len(expected)
    for got, wanted in zip(gpus, expected, strict=True):
        assert differences(wanted, got) == {}


def test_every_text_has_an_expectation() -> None:
    assert {file.stem for file in FOLDER.glob("*.txt")} == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
@pytest.mark.parametrize(
    "changed",
    [
        lambda printed: "".join(f"    {line}\n" for line in printed.splitlines()),
        lambda printed: "".join(f"> > {line}\n" for line in printed.splitlines()),
        lambda printed: printed.replace("\t", "        "),
        lambda printed: printed.replace("\n", "\r\n"),
        lambda printed: printed.replace(" ", "\u00a0"),
        lambda printed: printed.replace(" controller", " \x1b[01;31m\x1b[Kcontroller\x1b[m\x1b[K"),
        lambda printed: (
            f"root@box:~# lspci -nnvv\n{printed}root@box:~# dmesg | tail -1\n[ 12.5] nvidia 0000:0e:00.0: enabling device\n"
        ),
        lambda printed: (
            "0b:00.0 Non-Volatile memory controller [0108]: Samsung Electronics Co Ltd NVMe SSD [144d:a80a]\n" + printed
        ),
        lambda printed: printed.replace("\n", "\n[   12.5] NVRM: GPU at 0000:02:00.0 has fallen off the bus.\n"),
    ],
    ids=[
        "indented",
        "quoted",
        "spaces",
        "crlf",
        "unbreakable",
        "coloured",
        "in a terminal",
        "after another device",
        "between lines of the kernel",
    ],
)
def test_how_it_was_pasted_makes_no_difference(name: str, changed: Any) -> None:
    # A text that ends within a line is completed by whatever is put after it: that one has no other form.
    if text(name).endswith("\n"):
        assert said(changed(text(name))) == said(text(name))


def test_a_device_in_full() -> None:
    (device,) = parse(
        "0001:03:00.0 VGA compatible controller [0300]: Intel Corporation DG2 [Arc A770] [8086:56A0] (rev 08)\n"
        "\tRegion 0: Memory at 81000000 (64-bit, non-prefetchable) [size=512K]\n"
        "\tRegion 2: Memory at <unassigned> (64-bit, prefetchable) [disabled] [size=16G]\n"
        "\tExpansion ROM at 82800000 [disabled] [size=2M]\n"
        "\tCapabilities: [70] Express (v2) Endpoint, MSI 00\n"
        "\t\tLnkCap:\tPort #0, Speed 16GT/s, Width x16, ASPM L0s L1\n"
        "\t\tLnkSta:\tSpeed 2.5GT/s (downgraded), Width x8 (downgraded)\n"
        "\t\tLnkCap2: Supported Link Speeds: 2.5GT/s, Crosslink-\n"
        "\tIOMMU group: 0\n"
        "\tKernel driver in use: i915\n"
        "\tKernel modules: i915, xe\n"
    )
    assert device == Device(
        address="0001:03:00.0",
        class_id="0300",
        name="Intel Corporation DG2 [Arc A770]",
        vendor_id="8086",
        device_id="56a0",
        driver="i915",
        modules=("i915", "xe"),
        port=Port.ENDPOINT,
        link=LinkState(width=8, max_width=16, speed_gts=2.5, max_speed_gts=16.0),
        windows=((0, 0.5), (2, 16384)),
        iommu_group=0,
    )


@pytest.mark.parametrize(
    ("words", "port"),
    [
        ("Express (v2) Legacy Endpoint, MSI 00", Port.ENDPOINT),
        ("Express Endpoint IRQ 0", Port.ENDPOINT),
        ("Express (v2) Root Complex Integrated Endpoint, IntMsgNum 0", Port.INTEGRATED),
        ("Express (v1) Root Port (Slot+), MSI 00", Port.ROOT),
        ("Express (v2) Upstream Port, IntMsgNum 0", Port.UPSTREAM),
        ("Express (v2) Downstream Port (Slot-), MSI 00", Port.DOWNSTREAM),
        ("Express (v1) PCI-Express to PCI/PCI-X Bridge, MSI 00", Port.BRIDGE),
        ("Express (v2) Root Complex Event Collector, MSI 00", None),
    ],
)
def test_kinds_of_ports(words: str, port: Port | None) -> None:
    (device,) = parse(f"00:01.0 PCI bridge [0604]: Intel Corporation Device [8086:a70d]\n\tCapabilities: [40] {words}\n")
    assert device.port is port


@pytest.mark.parametrize("ids", [True, False])
def test_lines_for_programs_are_read_too(ids: bool) -> None:
    """Those of lspci -mm, and with ids of -nnmm."""
    with_ids = '01:00.0 "3D controller [0302]" "NVIDIA Corporation [10de]" "GP102GL [Tesla P40] [1b38]" -ra1 "NVIDIA [10de]" ""'
    without = '01:00.0 "3D controller" "NVIDIA Corporation" "GP102GL [Tesla P40]" -ra1 "NVIDIA Corporation" "Device 11d9"'
    number = ("10de", "1b38") if ids else (None, None)
    name = "NVIDIA Corporation GP102GL [Tesla P40]"
    assert parse(with_ids if ids else without) == [Device("0000:01:00.0", "0302", name, *number)]


@pytest.mark.parametrize("quote", ["", "> "])
def test_a_line_that_a_mail_has_wrapped_keeps_its_ids(quote: str) -> None:
    line = f"{quote}01:00.0 VGA compatible controller [0300]: NVIDIA Corporation Device\n{quote}[10de:2d04] (rev a1)\n"
    (device,) = parse(f"{line}{quote}\tSubsystem: Micro-Star International [1462:5354]\n")
    assert (device.vendor_id, device.device_id) == ("10de", "2d04")


def test_the_ids_of_a_subsystem_are_not_those_of_the_device() -> None:
    (device,) = parse("01:00.0 VGA compatible controller: NVIDIA Corporation GP102\n\tSubsystem: Micro-Star [1462:5354]\n")
    assert device.device_id is None


def test_the_nearest_bridge_is_the_parent() -> None:
    devices = parse(text("a770-behind-its-own-bridges") + text("three-gpus-two-vendors"))
    assert {device.address: device.parent for device in devices} == {
        "0000:00:01.1": None,
        "0000:01:00.0": "0000:00:01.1",
        "0000:02:01.0": "0000:01:00.0",
        "0000:03:00.0": "0000:02:01.0",
        "0000:00:02.0": None,
        "0000:81:00.0": None,
        "0001:83:00.0": None,
    }


def test_a_bridge_of_another_domain_is_no_parent() -> None:
    devices = parse(text("3090-idle-healthy").replace("\n01:00.0", "\n10000:01:00.0"))
    assert [device.parent for device in devices] == [None, None]


@given(st.text())
def test_no_text_raises(printed: str) -> None:
    said(printed)


@given(st.lists(st.sampled_from([line for one in TEXTS for line in one.splitlines(keepends=True)] + ["\0\x85\n", "LnkSta:"])))
def test_no_mixture_of_lines_raises(lines: list[str]) -> None:
    said("".join(lines))


@given(st.sampled_from(TEXTS), st.data())
def test_no_damage_raises(printed: str, data: st.DataObject) -> None:
    """A piece of a text, in which characters were replaced."""
    start, end = (data.draw(st.integers(0, len(printed))) for _ in range(2))
    piece = list(printed[start:end] or printed)
    for place in data.draw(st.lists(st.integers(0, len(piece) - 1), max_size=20)):
        piece[place] = data.draw(st.characters(codec="utf-8") | st.sampled_from("0fx:.[]()\n\t"))
    for gpu in said("".join(piece)):
        assert gpu["link"]["reason"]


@given(st.sampled_from(TEXTS), st.data())
def test_a_text_that_is_cut_off_raises_no_false_alarm(printed: str, data: st.DataObject) -> None:
    """What was lost can make a link unknown, or leave the port above to speak for it; it cannot make a good link look bad."""
    whole = {gpu["address"]: gpu["link"] for gpu in said(printed)}
    for gpu in said(printed[: data.draw(st.integers(0, len(printed)))]):
        if gpu["link"]["verdict"] in ("narrow", "slow"):
            assert gpu["link"]["width"] == whole[gpu["address"]]["width"]
