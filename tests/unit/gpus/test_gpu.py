"""roles.gpus.gpu: which devices are GPUs, what they are, and what is to be known of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from roles.gpus.catalog import load
from roles.gpus.gpu import declared, gpus_of
from roles.gpus.lspci import parse
from roles.gpus.pci import Device, LinkState, Port, merge
from tests.unit.gpus.cases import text

CATALOG = load()
GTX = Device(
    "0000:0e:00.0",
    class_id="0300",
    name="NVIDIA Corporation GP102 [GeForce GTX 1080 Ti]",
    vendor_id="10de",
    device_id="1b06",
)
ARC = replace(GTX, name="Intel Corporation DG2 [Arc A770]", vendor_id="8086", device_id="56a0")


@pytest.mark.parametrize(
    ("class_id", "found"), [("0300", 1), ("0302", 1), ("0380", 1), ("0301", 0), ("0403", 0), ("0680", 0), ("0604", 0), (None, 0)]
)
def test_display_controllers_are_gpus(class_id: str | None, found: int) -> None:
    assert len(gpus_of([replace(GTX, class_id=class_id)], CATALOG)) == found


def test_gpus_are_in_the_order_of_their_addresses() -> None:
    devices = [replace(GTX, address=address) for address in ("0001:01:00.0", "0000:0e:00.0", "0000:02:00.0")]
    assert [gpu.address for gpu in gpus_of(devices, CATALOG)] == ["0000:02:00.0", "0000:0e:00.0", "0001:01:00.0"]


@pytest.mark.parametrize(
    ("vendor_id", "name", "vendor", "chip"),
    [
        ("10de", "NVIDIA Corporation AD104M [GeForce RTX 4080 Max-Q / Mobile]", "nvidia", "AD104"),
        ("10de", "NVIDIA Corporation GV100GL [Tesla V100 PCIe 16GB]", "nvidia", "GV100"),
        ("10de", "NVIDIA Corporation GK110BGL [Tesla K40m]", "nvidia", "GK110"),
        ("10de", "NVIDIA Corporation GB20B [GB10]", "nvidia", "GB20B"),
        ("10de", "NVIDIA Corporation GM204 [GM107 INT52]", "nvidia", "GM204"),
        ("10de", "NVIDIA Corporation Device", "nvidia", None),
        ("10de", "NVIDIA Corporation GT218 [GeForce 210]", "nvidia", None),
        ("12d2", "NVidia / SGS Thomson (Joint Venture) Riva128", "nvidia", None),
        ("1002", "Advanced Micro Devices, Inc. [AMD/ATI] Navi 21 GL-XL [Radeon PRO W6800]", "amd", "Navi 21"),
        ("1002", "Advanced Micro Devices, Inc. [AMD/ATI] Vega 20 [Radeon VII]", "amd", "Vega 20"),
        ("1002", "Advanced Micro Devices, Inc. [AMD/ATI] Device", "amd", None),
        ("8086", "Intel Corporation Battlemage G21 [Arc B580]", "intel", "Battlemage G21"),
        ("8086", "Intel Corporation TigerLake-LP GT2 [Iris Xe Graphics]", "intel", "TigerLake-LP GT2"),
        ("8086", "Intel Corporation HD Graphics 530", "intel", None),
        ("1a03", "ASPEED Technology, Inc. ASPEED Graphics Family", "other", None),
        (None, "NVIDIA Corporation TU104 [GeForce RTX 2080]", "nvidia", "TU104"),
        (None, "nVidia Corporation GF110 [GeForce GTX 580]", "nvidia", "GF110"),
        (None, "Advanced Micro Devices, Inc. [AMD/ATI] Navi 31 [Radeon RX 7900 XTX]", "amd", "Navi 31"),
        (None, "Advanced Micro Devices [AMD] nee ATI Cypress [Radeon HD 5870]", "amd", "Cypress"),
        (None, "Intel Corporation DG2 [Arc A770]", "intel", "DG2"),
        (None, "Matrox Electronics Systems Ltd. MGA G200e", "other", None),
    ],
)
def test_vendor_and_chip(vendor_id: str | None, name: str, vendor: str, chip: str | None) -> None:
    (gpu,) = gpus_of([replace(GTX, vendor_id=vendor_id, device_id=vendor_id and "0001", name=name)], CATALOG)
    assert (gpu.vendor, gpu.chip) == (vendor, chip)


def test_sysfs_alone_has_no_name_and_the_id_is_enough() -> None:
    (gpu,) = gpus_of([replace(GTX, name="")], CATALOG)
    assert (gpu.name, gpu.chip, gpu.generation, gpu.compute_capability) == ("", None, "pascal", "6.1")


@pytest.mark.parametrize(
    ("device", "integrated"),
    [
        (GTX, False),
        (ARC, False),
        (replace(ARC, address="0000:00:02.0"), False),
        (replace(ARC, device_id="4680", name="Intel Corporation AlderLake-S GT1"), True),
        (replace(ARC, device_id="4680", name="", address="0000:00:02.0", link=LinkState(16, 16, 8, 8)), True),
        (replace(ARC, device_id="4905", name="Intel Corporation DG1", link=LinkState(1, 1, 2.5, 2.5)), False),
        (replace(GTX, vendor_id="1002", device_id="164e", name=""), True),
        (replace(GTX, vendor_id="1002", device_id="744c", name="", port=Port.INTEGRATED), False),
        (replace(GTX, vendor_id="1002", device_id="130f", name="Advanced Micro Devices, Inc. [AMD/ATI] Kaveri"), True),
        (replace(GTX, vendor_id="1002", device_id="9999", name="", port=Port.INTEGRATED), True),
        (replace(GTX, port=Port.INTEGRATED), False),
    ],
)
def test_integrated(device: Device, integrated: bool) -> None:
    (gpu,) = gpus_of([device], CATALOG)
    assert gpu.integrated is integrated


@pytest.mark.parametrize(
    ("device", "note"),
    [
        (replace(ARC, windows=((0, 16), (2, 256))), "Resizable BAR is off"),
        (replace(GTX, driver="nouveau", modules=("nouveau", "nvidia_drm", "nvidia")), "a reboot is owed"),
        (replace(GTX, driver="nouveau", modules=("nvidiafb", "nouveau")), "NVIDIA's driver is not installed"),
        (replace(GTX, driver="vfio-pci"), "kept for a VM"),
        (replace(GTX, name="", device_id="1180"), "too old"),
        (replace(GTX, name="", device_id="ffff"), "nothing is known of it"),
    ],
)
def test_a_note(device: Device, note: str) -> None:
    (gpu,) = gpus_of([device], CATALOG)
    assert [note in said for said in gpu.notes] == [True]


@pytest.mark.parametrize(
    "device",
    [
        replace(ARC, windows=((0, 16), (2, 16384))),
        ARC,
        replace(ARC, windows=((0, 16),)),
        replace(GTX, windows=((1, 256),)),
        replace(GTX, driver="nvidia", modules=("nouveau", "nvidia")),
        replace(GTX, iommu_group=0),
    ],
)
def test_no_note(device: Device) -> None:
    (gpu,) = gpus_of([device], CATALOG)
    assert gpu.notes == ()


def test_who_shares_an_iommu_group() -> None:
    """Functions of the card and bridges do not count; another GPU does, for each of the two."""
    others = [
        Device("0000:0e:00.1", class_id="0403", iommu_group=0),
        Device("0000:00:03.0", class_id="0604", iommu_group=0),
        Device("0000:00:00.0", class_id="0600", iommu_group=0),
        replace(GTX, address="0000:0f:00.0", iommu_group=0),
        Device("0000:10:00.0", class_id="0200", iommu_group=1),
        Device("0000:11:00.0", class_id="0200"),
    ]
    gpus = gpus_of([replace(GTX, iommu_group=0), *others], CATALOG)
    assert [gpu.iommu_neighbours for gpu in gpus] == [("0000:0f:00.0",), ("0000:0e:00.0", "0000:0e:00.1")]


def test_what_is_behind_the_bridges_of_a_card_is_the_cards_own() -> None:
    devices = [replace(device, iommu_group=20) for device in parse(text("b580-in-an-x4-slot"))]
    (gpu,) = gpus_of(devices, CATALOG)
    assert gpu.iommu_neighbours == ()


@pytest.mark.parametrize(
    ("words", "generation", "device_id", "chip"),
    [
        ("10de:1b06", "pascal", "10de:1b06", None),
        ("10DE:1B06", "pascal", "10de:1b06", None),
        ("[10de:2d04]", "blackwell", "10de:2d04", None),
        ("GP102", "pascal", None, "GP102"),
        (" gp102 ", "pascal", None, "GP102"),
        ("AD104M [GeForce RTX 4080 Max-Q / Mobile]", "ada", None, "AD104"),
        ("NVIDIA Corporation GP102 [GeForce GTX 1080 Ti] [10de:1b06]", "pascal", "10de:1b06", "GP102"),
        ("Navi 48", "rdna4", None, "Navi 48"),
        ("DG2", "alchemist", None, "DG2"),
        ("8086:e20b", "battlemage", "8086:e20b", None),
        ("1002:1586", "rdna3.5", "1002:1586", None),
        (text("1080ti-x4-slot-unknown"), "pascal", "10de:1b06", "GP102"),
        (text("a770-alone"), "alchemist", "8086:56a0", "DG2"),
    ],
)
def test_what_can_be_declared(words: str, generation: str, device_id: str | None, chip: str | None) -> None:
    gpu = declared(words, CATALOG)
    assert (gpu.generation, gpu.device_id, gpu.chip) == (generation, device_id, chip)
    assert (gpu.address, gpu.link) == (None, None)


@pytest.mark.parametrize(
    "words",
    [
        "",
        "GTX 1080 Ti",
        "10de:10ef",
        "1b06",
        "Graphics",
        "AMD",
        "0e:00.1 Audio device [0403]: NVIDIA Corporation GP102 HDMI Audio Controller [10de:10ef] (rev a1)",
    ],
)
def test_what_cannot_be_declared(words: str) -> None:
    with pytest.raises(ValueError, match="names no chip and no id that the catalog knows"):
        declared(words, CATALOG)


@pytest.mark.parametrize("words", [text("three-gpus-two-vendors"), "10de:1b06, 10de:2d04", "10de:1b06 10de:1b06"])
def test_only_one_gpu_is_declared_at_once(words: str) -> None:
    with pytest.raises(ValueError, match="names several GPUs"):
        declared(words, CATALOG)


def test_sysfs_counts_and_lspci_completes_it() -> None:
    sysfs = [
        Device(
            GTX.address,
            class_id="0300",
            vendor_id="10de",
            device_id="1b06",
            driver="vfio-pci",
            link=LinkState(4, 16, 2.5, 8),
            parent="0000:00:01.0",
            iommu_group=0,
            load_percent=0,
        ),
        Device("0000:00:01.0", class_id="0604"),
    ]
    lspci = [
        replace(
            GTX,
            driver="nvidia",
            modules=("nouveau",),
            port=Port.ENDPOINT,
            link=LinkState(16, 16, 8, 8),
            denied=True,
            iommu_group=7,
            load_percent=50,
        ),
        Device("0000:0e:00.1", class_id="0403"),
    ]
    bridge, gpu, audio = merge(sysfs, lspci)
    assert (bridge, audio) == (sysfs[1], lspci[1])
    assert gpu == replace(sysfs[0], name=GTX.name, modules=("nouveau",), port=Port.ENDPOINT, denied=True)


def test_a_device_that_only_lspci_finds_dead_is_dead() -> None:
    assert merge([replace(GTX, name="", asleep=True)], [replace(GTX, dead=True)]) == [replace(GTX, asleep=True, dead=True)]
