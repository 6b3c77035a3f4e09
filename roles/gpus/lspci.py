"""Reads what lspci prints, of any version and at any verbosity, as people paste it. Pure.

What changed between versions is in the tags of github.com/pciutils/pciutils: up to 3.5.6 LnkSta is one line without remarks, 3.6
and 3.7 remark ``(ok)`` or ``(downgraded)`` on each value, 3.8 and newer only where a value differs, and never on a port. So the
remarks are passed over, and the numbers are compared.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from roles.gpus.pci import ALL_ONES, Device, LinkState, Port, combined, with_parents

_CLASSES = {
    "VGA compatible controller": "0300",
    "3D controller": "0302",
    "Display controller": "0380",
    "Host bridge": "0600",
    "ISA bridge": "0601",
    "PCI bridge": "0604",
}
"""Names of the classes that we look for or pass over, as pci.ids has them, for texts without ids."""

_PORTS = {
    "Endpoint": Port.ENDPOINT,
    "Legacy Endpoint": Port.ENDPOINT,
    "Root Complex Integrated Endpoint": Port.INTEGRATED,
    "Root Port": Port.ROOT,
    "Upstream Port": Port.UPSTREAM,
    "Downstream Port": Port.DOWNSTREAM,
    "PCI-Express to PCI/PCI-X Bridge": Port.BRIDGE,
    "PCI/PCI-X to PCI-Express Bridge": Port.BRIDGE,
}
_MIB = {"": 1 / 1024**2, "K": 1 / 1024, "M": 1, "G": 1024, "T": 1024**2}

_HEADER = re.compile(
    r"(?P<before>.*?)(?<![0-9a-f.])(?:(?P<domain>[0-9a-f]{4,8}):)?(?P<slot>[0-9a-f]{2}:[01][0-9a-f]\.[0-7])[ \t]+"
    r"(?P<class>[^:\[]*?)[ \t]*(?:\[(?P<class_id>[0-9a-f]{4})\])?(?::[ \t]*(?P<name>.*))?",
    re.IGNORECASE,
)
_MACHINE = re.compile(
    r"""(?P<slot>[0-9a-f:.]{7,16})\ "(?P<class>[^"]*)"\ "(?P<vendor>[^"]*?)(?:\ \[(?P<vendor_id>[0-9a-f]{4})\])?"
    \ "(?P<device>[^"]*?)(?:\ \[(?P<device_id>[0-9a-f]{4})\])?".*""",
    re.VERBOSE,
)
"""A line of lspci -mm, for programs to read."""
_DECORATION = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
"""The colours of a terminal, as grep puts them into what it finds."""
_QUOTE = " \t>|*+`-"
"""What mails, Markdown and tables put before a line."""
_REMARK = re.compile(r"[ \t]*\((?:rev|prog-if) ")
_IDS = re.compile(r"(?:^|\[)([0-9a-f]{4}):([0-9a-f]{4})\b\]?", re.IGNORECASE)
_WRAPPED = re.compile(r".*\n[^:\n]*\[([0-9a-f]{4}:[0-9a-f]{4})\]", re.IGNORECASE)
"""The ids of a first line that a mail has wrapped before them; any line of its own has a colon before an id."""
_NUMBER = re.compile(r"(?:Class )?([0-9a-f]{4})", re.IGNORECASE)
_EXPRESS = re.compile(rf"Express (?:\(v\d+\) )?({'|'.join(_PORTS)})")
_CAPABLE = re.compile(r"LnkCap:[ \t]*(.*)")
_STATUS = re.compile(r"LnkSta:[ \t]*(.*)")
_SPEED = re.compile(r"Speed ([0-9]+(?:\.[0-9]+)?)GT/s")
_WIDTH = re.compile(r"Width x([0-9]{1,3})\b")
_BUSES = re.compile(r"Bus: primary=[0-9a-f]{2}, secondary=([0-9a-f]{2}), subordinate=([0-9a-f]{2})", re.IGNORECASE)
_WINDOW = re.compile(r"(?:Region ([0-9]): )?Memory at .{1,99}?\[size=([0-9]{1,9})([KMGT]?)\]")
_GROUP = re.compile(r"IOMMU group:? ([0-9]{1,9})")
_DRIVER = re.compile(r"Kernel driver in use:[ \t]*(\S+)")
_MODULES = re.compile(r"Kernel modules:[ \t]*(.*)")
_DEAD = re.compile(r"\(rev ff\)|!!! Unknown header type 7f", re.IGNORECASE)


def parse(text: str) -> list[Device]:
    """The devices in a text, in its order, each with the bridge above it where that is there too.

    Lines that belong to no device are passed over. What the text says of a device in two places is put together.
    """
    # A text that ends within a line may have been cut off there, and x1 may have been x16.
    text = re.sub(r"Width x[136]\Z", "", _DECORATION.sub("", text).replace("\u00a0", " "))
    found: dict[str, Device] = {}
    for header, block in _blocks(text):
        device = _device(header, block)
        before = found.get(device.address)
        found[device.address] = combined(before, device) if before else device
    return with_parents(found.values())


def _blocks(text: str) -> Iterator[tuple[re.Match[str], str]]:
    """The line that begins a device, and the lines up to the next one."""
    header: re.Match[str] | None = None
    lines: list[str] = []
    for line in text.splitlines():
        begins = _header(line)
        if begins and header:
            yield header, "\n".join(lines)
        if begins:
            header, lines = begins, []
        lines.append(line)
    if header:
        yield header, "\n".join(lines)


def _header(line: str) -> re.Match[str] | None:
    found = _HEADER.fullmatch(_MACHINE.sub(_for_people, line))
    # Words before the address are a log's, or the line is no header at all: then only the id of a class proves that it is one.
    return found if found and (found["class_id"] or not found["before"].strip(_QUOTE)) else None


def _for_people(line: re.Match[str]) -> str:
    ids = f"[{line['vendor_id']}:{line['device_id']}]" if line["device_id"] else ""
    return f"{line['slot']} {line['class']}: {line['vendor']} {line['device']} {ids}"


def _device(header: re.Match[str], block: str) -> Device:
    name, *_ = _REMARK.split(header["name"] or "")
    wrapped = _WRAPPED.match(block)
    ids = _IDS.findall(name) or _IDS.findall(wrapped[1] if wrapped else "")
    vendor, device = (part.lower() for part in ids[-1]) if ids else (None, None)
    capable, status, modules = _CAPABLE.search(block), _STATUS.search(block), _MODULES.search(block)
    link = LinkState(
        width=_width(status),
        max_width=_width(capable),
        speed_gts=_speed(status),
        max_speed_gts=_speed(capable),
    )
    return Device(
        address=f"{int(header['domain'] or '0', 16):04x}:{header['slot'].lower()}",
        class_id=_class(header),
        name=_IDS.sub("", name).strip(),
        vendor_id=vendor,
        device_id=device,
        driver=_text(_DRIVER, block),
        modules=tuple(module.strip() for module in modules[1].split(",") if module.strip()) if modules else (),
        port=_PORTS.get(_text(_EXPRESS, block) or ""),
        link=None if link == LinkState() else link,
        denied="<access denied>" in block,
        dead=bool(_DEAD.search(block)) or link.width == ALL_ONES,
        windows=_windows(block),
        buses=_buses(block),
        iommu_group=_number(_text(_GROUP, block)),
    )


def _class(header: re.Match[str]) -> str | None:
    number = _NUMBER.fullmatch(header["class_id"] or header["class"])
    return number[1].lower() if number else _CLASSES.get(header["class"])


def _width(line: re.Match[str] | None) -> int | None:
    return _number(_text(_WIDTH, line[1])) if line else None


def _speed(line: re.Match[str] | None) -> float | None:
    speed = _text(_SPEED, line[1]) if line else None
    return float(speed) if speed else None


def _windows(block: str) -> tuple[tuple[int, float], ...]:
    # Without -vv the windows have no numbers.
    found = enumerate(_WINDOW.findall(block))
    return tuple((int(number or place), int(size) * _MIB[unit]) for place, (number, size, unit) in found)


def _buses(block: str) -> tuple[int, int] | None:
    found = _BUSES.search(block)
    return (int(found[1], 16), int(found[2], 16)) if found else None


def _text(pattern: re.Pattern[str], text: str) -> str | None:
    found = pattern.search(text)
    return found[1] if found else None


def _number(text: str | None) -> int | None:
    return int(text) if text else None
