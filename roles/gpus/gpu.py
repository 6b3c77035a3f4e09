"""One GPU: what it is by the catalog, and how its link is. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from roles.gpus.catalog import Catalog, Chips, numbers
from roles.gpus.link import Link, gb_s, judge, upstream_port
from roles.gpus.lspci import parse
from roles.gpus.pci import Device, Port, above, slot, vendor

DISPLAY_CLASSES = ("0300", "0302", "0380")
"""VGA compatible controllers, 3D controllers and display controllers; audio, USB and NVSwitch functions of a card are none."""

OLDEST_CAPABILITY = (5, 0)
"""The oldest compute capability that llama.cpp compiles for (0c1e570, ggml/src/ggml-cuda/CMakeLists.txt)."""

TUNNEL_GTS = 2.5
"""The speed that a tunnel of Thunderbolt or USB4 claims to have."""

SMALL_WINDOW_MIB = 256
"""The largest memory window of a card whose BAR is not resized."""

_NVIDIA_CHIP = re.compile(r"\b(?:GF|GK|GM|GP|GV|TU|GA|AD|GH|GB|GR)[0-9]{2}[0-9A-F]", re.IGNORECASE)
"""The chip, without what tells mobile (M) and workstation (GL) variants apart."""
_AMD_CHIP = re.compile(r"(?:Navi|Vega|Polaris) [0-9]+")
"""AMD's chips, without what tells their variants apart (XT, GL-XL)."""
_MAKER = re.compile(r"(?:Advanced Micro Devices.*?\bATI\]?|ATI Technologies,? Inc\.?|Intel Corporation) ")
_UNNAMED = re.compile(r"\bDevice ([0-9a-f]{4})\b")
_ID = re.compile(r"\s*\[?\b(10de|12d2|1002|8086):([0-9a-f]{4})\b\]?", re.IGNORECASE)
_VENDOR_IDS = {"nvidia": "10de", "amd": "1002", "intel": "8086"}
_OLD_APUS = re.compile(r"\b(?:Kaveri|Kabini|Mullins|Carrizo|Stoney|Wani|Trinity|Richland|Sumo|BeaverCreek|Wrestler|Bristol)\b")
"""AMD's processors with graphics before those that the catalog knows, as pci.ids names them."""


@dataclass(frozen=True)
class Gpu:
    """A GPU that was seen or declared.

    :param address: domain:bus:device.function; None for one that was only declared
    :param vendor: nvidia, amd, intel, or other
    :param name: vendor and device in words, as lspci names it
    :param device_id: vendor:device, e.g. 10de:1b06; None where it is not known
    :param chip: without its mobile suffix, e.g. GP102; None where it is not known
    :param generation: a key of the catalog; None where the catalog does not know it
    :param compute_capability: NVIDIA's, e.g. 6.1
    :param gfx_target: AMD's, e.g. gfx1100
    :param integrated: it shares the memory of the processor
    :param driver: the kernel driver that holds it
    :param modules: the kernel modules that could
    :param link: None for one that was only declared
    :param memory_mib: its memory in MiB, where its driver says so
    :param iommu_group: None where the IOMMU is off, or not known
    :param iommu_neighbours: addresses of devices in its group that are not functions of the card itself, nor bridges
    :param notes: what is to be known of it beside its link, one sentence each
    """

    address: str | None
    vendor: str
    name: str
    device_id: str | None
    chip: str | None
    generation: str | None
    compute_capability: str | None = None
    gfx_target: str | None = None
    integrated: bool = False
    driver: str | None = None
    modules: tuple[str, ...] = ()
    link: Link | None = None
    memory_mib: int | None = None
    iommu_group: int | None = None
    iommu_neighbours: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def gpus_of(devices: Iterable[Device], catalog: Catalog) -> list[Gpu]:
    """The GPUs among the devices of a host, in the order of their addresses."""
    seen = {device.address: device for device in devices}
    return [_gpu(seen[address], seen, catalog) for address in sorted(seen) if seen[address].class_id in DISPLAY_CLASSES]


def declared(text: str, catalog: Catalog) -> Gpu:
    """A GPU that cannot be seen yet.

    :param text: what lspci prints of it, or a part of that which holds its id or begins with its chip: ``10de:1b06``, ``GP102``
    :raises ValueError: the text names no GPU that the catalog knows, or several
    """
    printed = parse(text)
    displays = [device for device in printed if device.class_id in DISPLAY_CLASSES]
    devices = displays if printed else _described(text.strip(), catalog)
    gpus = [gpu for gpu, chips in (_identify(device, catalog) for device in devices) if chips]
    if len(gpus) != 1:
        raise ValueError("it names several GPUs" if gpus else "it names no chip and no id that the catalog knows")
    return gpus[0]


def _described(text: str, catalog: Catalog) -> list[Device]:
    """Devices of which no more is known than their ids, or one by the name of its chip."""
    name = _ID.sub("", text)
    found = [
        Device("", name=name, vendor_id=vendor_id.lower(), device_id=number.lower()) for vendor_id, number in _ID.findall(text)
    ]
    if found:
        return found
    maker = next((maker for maker in _VENDOR_IDS if catalog.find(maker, text, None)), "")
    return [Device("", name=text, vendor_id=_VENDOR_IDS.get(maker))]


def _identify(device: Device, catalog: Catalog) -> tuple[Gpu, Chips | None]:
    """What a GPU is, wherever it is; and what the catalog has on its kind."""
    maker = vendor(device)
    chip = _chip(maker, device.name)
    unnamed = _UNNAMED.search(device.name)
    number = device.device_id or (unnamed[1] if unnamed else None)
    maker_id = device.vendor_id or _VENDOR_IDS.get(maker)
    generation, chips = catalog.find(maker, chip, number) or (None, None)
    gpu = Gpu(
        address=None,
        vendor=maker,
        name=device.name,
        device_id=f"{maker_id}:{number}" if maker_id and number else None,
        chip=chip,
        generation=generation,
        compute_capability=chips.compute_capability if chips else None,
        gfx_target=chips.gfx_target if chips else None,
        integrated=chips.integrated if chips else _is_integrated(device),
    )
    return gpu, chips


def _chip(maker: str, name: str) -> str | None:
    if maker == "nvidia":
        found = _NVIDIA_CHIP.search(name)
        return found[0].upper() if found else None
    if maker == "other":
        return None
    words = _MAKER.sub("", name).partition("[")[0].strip()
    numbered = _AMD_CHIP.match(words)
    # What pci.ids has no chip for is a Device, or goes by what it is sold as: UHD Graphics 630.
    return numbered[0] if numbered else words if words and not re.search("Device|Graphics", words) else None


def _is_integrated(device: Device) -> bool:
    """Whether a GPU that the catalog does not know is a part of the processor."""
    if vendor(device) == "amd":
        return device.port is Port.INTEGRATED or bool(_OLD_APUS.search(device.name))
    return vendor(device) == "intel" and (device.link is None or device.address.endswith("00:02.0"))


def _gpu(device: Device, seen: Mapping[str, Device], catalog: Catalog) -> Gpu:
    gpu, chips = _identify(device, catalog)
    gpu = replace(
        gpu,
        address=device.address,
        driver=device.driver,
        modules=device.modules,
        link=judge(device, seen, bridged=chips is not None and chips.bridged, integrated=gpu.integrated),
        iommu_group=device.iommu_group,
        iommu_neighbours=_neighbours(device, seen),
    )
    return replace(gpu, notes=(*_notes(gpu, device), *_bottlenecks(gpu, seen)))


def _neighbours(device: Device, seen: Mapping[str, Device]) -> tuple[str, ...]:
    """What is in the IOMMU group of a card beside itself; bridges may stay with the host."""
    upstream = upstream_port(device, seen)
    return tuple(
        other.address
        for other in seen.values()
        if other.iommu_group == device.iommu_group is not None
        and slot(other.address) != slot(device.address)
        and not (upstream and upstream in above(other, seen))
        and not (other.class_id or "").startswith("06")
    )


def _notes(gpu: Gpu, device: Device) -> Iterator[str]:
    # The first window has the registers; in a text that is cut off it may be all that there is.
    window = max((size for number, size in device.windows if number), default=None)
    if gpu.vendor == "intel" and not gpu.integrated and window and window <= SMALL_WINDOW_MIB:
        yield f"Resizable BAR is off, since its largest memory window has {window:g} MiB: switch it on in the firmware's setup."
    if gpu.driver == "nouveau":
        installed = any(module.startswith("nvidia") and module != "nvidiafb" for module in gpu.modules)
        owed = "NVIDIA's driver is installed: a reboot is owed" if installed else "NVIDIA's driver is not installed"
        yield f"nouveau holds it, and {owed}."
    if gpu.driver == "vfio-pci":
        yield "vfio-pci holds it: it is kept for a VM."
    if gpu.iommu_neighbours:
        others = ", ".join(gpu.iommu_neighbours)
        yield f"It shares IOMMU group {gpu.iommu_group} with {others}: they go to a VM together or not at all."
    if gpu.compute_capability and numbers(gpu.compute_capability) < OLDEST_CAPABILITY:
        yield f"It is too old: its compute capability is {gpu.compute_capability}, and llama.cpp needs 5.0."
    if gpu.generation is None and gpu.vendor != "other" and not gpu.integrated:
        yield "It is in no entry of roles/gpus/catalog.yaml, so that nothing is known of it: update gpuquilt, or add it there."


def _bottlenecks(gpu: Gpu, seen: Mapping[str, Device]) -> Iterator[str]:
    """Switches between the card's slot and the processor that have less than the slot.

    The tunnels of Thunderbolt and USB4 say 2.5 GT/s, whatever they carry (ewagner12/all-ways-egpu, issue 37).
    """
    end = seen.get(gpu.link.measured_at or "") if gpu.link else None
    if gpu.link is None or end is None:
        return
    has = gb_s(gpu.link.width or 0, gpu.link.max_speed_gts or 0)
    for bridge in above(end, seen):
        if bridge.port is not Port.UPSTREAM or bridge.link is None or bridge.link.max_speed_gts == TUNNEL_GTS:
            continue
        uplink = gb_s(bridge.link.width or 0, bridge.link.max_speed_gts or 0)
        if 0 < uplink < has:
            yield f"The switch above it has {uplink:.1f} GB/s at {bridge.address}, less than the slot's {has:.1f} GB/s."
