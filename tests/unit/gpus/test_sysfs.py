"""roles.gpus.sysfs: the real command on made-up hosts, and its parser."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roles.gpus import sysfs
from roles.gpus.pci import Device, LinkState
from tests.unit.gpus.host import LINK, Host, link_files

FULL = link_files("16", "16", "2.5 GT/s PCIe", "16.0 GT/s PCIe")
WINDOWS = """0x00000000fb000000 0x00000000fbffffff 0x0000000000040200
0x000000d000000000 0x000000d00fffffff 0x000000000014220c
0x0000000000000000 0x0000000000000000 0x0000000000000000
0x000000d010000000 0x000000d011ffffff 0x000000000014220c
0x0000000000000000 0x0000000000000000 0x0000000000000000
0x000000000000e000 0x000000000000e07f 0x0000000000040101
0x00000000000c0000 0x00000000000dffff 0x0000000000000212"""


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def seen(host: Host) -> dict[str, Device]:
    ended = host.run(sysfs.look(str(host.root)))
    assert (ended.status, ended.errors) == (0, "")
    return {device.address: device for device in sysfs.parse(ended.output.splitlines())}


def desktop(host: Host, **card: str) -> None:
    """A card with its audio function, alone behind a port that Intel's own GPU is no part of."""
    host.device("0000:00:02.0", "030000 8086:4680", "i915", 0, **link_files("0", "255", "Unknown", "Unknown"))
    host.device("0000:00:01.0", "060400 8086:460d", "pcieport", 1, **FULL)
    host.device("0000:00:01.0/0000:01:00.0", "030000 10de:2204", "nvidia", 14, resource=WINDOWS, **FULL | card)
    host.device("0000:00:01.0/0000:01:00.1", "040300 10de:1aef", "snd_hda_intel", 14, **FULL)
    host.device("0000:00:1f.0", "060100 8086:7a84", "", 15)


def test_a_desktop_shows_its_gpus_what_is_above_them_and_what_shares_their_groups(host: Host) -> None:
    desktop(host)
    found = seen(host)
    assert list(found) == ["0000:00:01.0", "0000:00:02.0", "0000:01:00.0", "0000:01:00.1"]
    assert found["0000:01:00.0"] == Device(
        address="0000:01:00.0",
        class_id="0300",
        vendor_id="10de",
        device_id="2204",
        driver="nvidia",
        link=LinkState(16, 16, 2.5, 16.0),
        windows=((0, 16.0), (1, 256.0), (3, 32.0)),
        parent="0000:00:01.0",
        iommu_group=14,
    )
    assert found["0000:01:00.1"].iommu_group == 14
    assert found["0000:00:01.0"].parent is None


def test_a_card_shows_all_its_functions_where_there_is_no_iommu_and_a_port_shows_itself_alone(host: Host) -> None:
    host.device("0000:00:01.0", "060400 8086:460d", "pcieport")
    host.device("0000:00:01.1", "060400 8086:462d", "pcieport")
    host.device("0000:00:01.0/0000:01:00.0", "030000 10de:2204", "nvidia")
    host.device("0000:00:01.0/0000:01:00.1", "040300 10de:1aef", "snd_hda_intel")
    assert list(seen(host)) == ["0000:00:01.0", "0000:01:00.0", "0000:01:00.1"]


def test_what_is_built_into_the_processor_has_no_link(host: Host) -> None:
    desktop(host)
    device = seen(host)["0000:00:02.0"]
    assert device.link is None
    assert not device.dead


@pytest.mark.parametrize("status", ["suspended", "suspending"])
def test_of_what_sleeps_nothing_is_read_that_wakes_it(host: Host, status: str) -> None:
    desktop(host, status=status, gpu_busy_percent="0")
    output = host.run(sysfs.look(str(host.root))).output
    block = output.partition("/0000:01:00.0\n")[2].partition("path ")[0]
    assert [line.split()[0] for line in block.splitlines()] == [
        *("class", "vendor", "device", "driver", "iommu_group"),
        *["window"] * 6,
        "asleep",
    ]
    device = seen(host)["0000:01:00.0"]
    assert (device.asleep, device.dead, device.link) == (True, False, None)
    assert seen(host)["0000:00:01.0"].link == LinkState(16, 16, 2.5, 16.0), "the port above it is awake"


def test_lspci_is_asked_for_nothing_that_sleeps(host: Host) -> None:
    desktop(host, status="suspended")
    host.program("lspci", 'echo "$*"')
    ended = host.run(sysfs.ask_lspci(str(host.root)))
    assert ended.status == 0
    assert sorted(line.split()[-1] for line in ended.output.splitlines()) == ["0000:00:01.0", "0000:00:02.0"]
    assert all(line.startswith("-D -nn -vvk -s ") for line in ended.output.splitlines())


def test_without_lspci_nothing_is_said(host: Host) -> None:
    desktop(host)
    command = sysfs.ask_lspci(str(host.root)).replace("PATH=$PATH:/usr/sbin:/sbin", "PATH=/nowhere")
    ended = host.run(command)
    assert (ended.status, ended.text) == (0, "")


def test_a_link_of_all_ones_is_that_of_a_dead_card(host: Host) -> None:
    desktop(host, **link_files("63", "63", "Unknown", "Unknown"))
    device = seen(host)["0000:01:00.0"]
    assert (device.dead, device.link) == (True, None)


def test_a_link_that_cannot_be_read_is_that_of_a_dead_card(host: Host) -> None:
    desktop(host)
    file = host.root / "sys/bus/pci/devices/0000:01:00.0/current_link_width"
    file.unlink()
    # A folder cannot be read, either.
    file.mkdir()
    device = seen(host)["0000:01:00.0"]
    assert (device.dead, device.link) == (True, None)


def test_a_guest_may_show_no_link_at_all(host: Host) -> None:
    host.device("0000:00:01.0", "030000 10de:1b06", "nvidia")
    assert seen(host)["0000:00:01.0"] == Device("0000:00:01.0", "0300", vendor_id="10de", device_id="1b06", driver="nvidia")


def test_amdgpu_says_how_busy_its_card_is_and_what_memory_it_has(host: Host) -> None:
    path = "0000:00:01.1/0000:2d:00.0/0000:2e:00.0/0000:2f:00.0"
    host.device("0000:00:01.1", "060400 1022:1483", "pcieport")
    host.device(
        "0000:00:01.1/0000:2d:00.0", "060400 1002:1478", "pcieport", **link_files("2", "16", "16.0 GT/s PCIe", "32.0 GT/s PCIe")
    )
    host.device("0000:00:01.1/0000:2d:00.0/0000:2e:00.0", "060400 1002:1479", "pcieport")
    host.device(path, "038000 1002:7550", "amdgpu", gpu_busy_percent="37", mem_info_vram_total=str(16304 * 2**20))
    found = seen(host)
    assert [device.parent for device in found.values()] == [None, "0000:00:01.1", "0000:2d:00.0", "0000:2e:00.0"]
    assert (found["0000:2f:00.0"].load_percent, found["0000:2f:00.0"].memory_mib) == (37, 16304)
    assert found["0000:2d:00.0"].link == LinkState(2, 16, 16.0, 32.0)


def test_a_group_is_shown_with_all_that_is_in_it(host: Host) -> None:
    host.device("0000:00:01.0", "060400 8086:1901", "pcieport", 1)
    host.device("0000:00:01.0/0000:01:00.0", "030000 10de:1b06", "vfio-pci", 1)
    host.device("0000:00:01.1", "060400 8086:1905", "pcieport", 1)
    host.device("0000:00:01.1/0000:02:00.0", "010802 144d:a808", "nvme", 1)
    assert {address: device.class_id for address, device in seen(host).items() if device.iommu_group == 1} == {
        "0000:00:01.0": "0604",
        "0000:00:01.1": "0604",
        "0000:01:00.0": "0300",
        "0000:02:00.0": "0108",
    }


def test_a_bus_of_another_domain_has_nothing_above_it(host: Host) -> None:
    host.device("0000:00:0e.0/pci10000:e0/10000:e0:06.0/10000:e1:00.0", "030200 10de:2330")
    host.device("0000:00:0e.0/pci10000:e0/10000:e0:06.0", "060400 8086:a74d")
    assert {address: device.parent for address, device in seen(host).items()} == {
        "10000:e0:06.0": None,
        "10000:e1:00.0": "10000:e0:06.0",
    }


def test_a_host_without_a_gpu_shows_nothing(host: Host) -> None:
    host.device("0000:00:1f.0", "060100 8086:7a84")
    assert seen(host) == {}
    assert host.run(sysfs.ask_lspci(str(host.root))).text == ""


def test_this_computer_can_be_asked_as_it_is(host: Host) -> None:
    ended = host.run(sysfs.look())
    assert (ended.status, ended.errors) == (0, "")
    gpus = [file for file in Path("/sys/bus/pci/devices").glob("*/class") if file.read_text().startswith("0x03")]
    assert len([device for device in sysfs.parse(ended.output.splitlines()) if device.class_id.startswith("03")]) == len(gpus)


@pytest.mark.parametrize(
    ("text", "speed"),
    [
        ("2.5 GT/s PCIe", 2.5),
        ("8.0 GT/s PCIe", 8.0),
        ("128.0 GT/s PCIe", 128.0),
        ("8 GT/s", 8.0),
        ("Unknown", None),
        ("Unknown speed", None),
        ("66 MHz PCI", None),
        ("", None),
    ],
)
def test_a_speed_is_read_however_the_kernel_writes_it(text: str, speed: float | None) -> None:
    lines = ["path /sys/devices/pci0000:00/0000:01:00.0", "current_link_width 16", f"current_link_speed {text}"]
    assert sysfs.parse(lines) == [Device("0000:01:00.0", link=LinkState(width=16, speed_gts=speed))]


KEYS = ["path", "class", "vendor", "device", "driver", "iommu_group", "window", "asleep", "gpu_busy_percent", *LINK]
VALUES = (
    st.text() | st.from_regex(r"\A(/x){0,3}/[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\Z") | st.from_regex(r"\A0x[0-9a-f]{4,6}\Z")
)


@given(st.lists(st.text() | st.builds(lambda key, value: f"{key} {value}", st.sampled_from(KEYS), VALUES)))
def test_no_output_makes_the_parser_raise(lines: list[str]) -> None:
    addresses = [device.address for device in sysfs.parse(lines)]
    assert addresses == sorted(set(addresses))
