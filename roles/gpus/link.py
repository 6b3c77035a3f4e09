"""The health of a GPU's PCI Express link. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeVar

from roles.gpus.pci import Device, LinkState, Port, above, vendor

_Number = TypeVar("_Number", int, float)

UNDER_LOAD = 10
"""From this load on, in percent, a card does not slow its link down to save power."""

GB_S_PER_LANE = {2.5: 0.25, 5: 0.5, 8: 0.985, 16: 1.969, 32: 3.938, 64: 7.563, 128: 15.126}
"""GT/s → GB/s in one direction of one lane (https://hpc-notes.pages.dev/reference/pcie; for 128 GT/s twice that of 64)."""

_ON_CARD = {
    ("1022", "1470"): Port.UPSTREAM,
    ("1022", "1471"): Port.DOWNSTREAM,
    ("1002", "1478"): Port.UPSTREAM,
    ("1002", "1479"): Port.DOWNSTREAM,
    ("8086", "4fa0"): Port.UPSTREAM,
    ("8086", "4fa1"): Port.UPSTREAM,
    ("8086", "4fa4"): Port.DOWNSTREAM,
    ("8086", "e2ff"): Port.UPSTREAM,
    ("8086", "e2f0"): Port.DOWNSTREAM,
}
"""Bridges that cards have of their own, for where the kind of port is not seen. AMD's: pci.ids 2026.10.24, which does not say
which of Vega 10's is which. Intel's: dumps of an A750 and a B580 (geerlingguy/raspberry-pi-pcie-devices, issues 510 and 695);
4fa1 is the upstream port of an A380 and an A370M, as public kernel logs show them."""


class Verdict(StrEnum):
    """What is to be said of a link, in one word."""

    FULL = "full"
    IDLE = "idle"
    SLOW = "slow"
    NARROW = "narrow"
    SLOT = "slot"
    UNKNOWN = "unknown"
    UNREACHABLE = "unreachable"


@dataclass(frozen=True)
class Link:
    """A verdict, and what it rests on.

    :param reason: one sentence for a person
    :param width: lanes in use
    :param max_width: lanes that the card can and the port above it, where that is seen, can
    :param speed_gts: GT/s per lane now
    :param max_speed_gts: GT/s per lane that both ends can, as far as they are seen
    :param measured_at: address of the device whose link was read; for a card with bridges of its own, its upstream port
    :param port: address of the port above, where it is seen
    :param lost_gb_s: bandwidth in one direction that card and port could have together and have not, GB/s. For `narrow` that of
        the missing lanes at full speed, since a card at rest slows down; under load, and for `slow`, all that is missing; else 0.
        Where the full speed is not shown, no more than what the present one tells
    """

    verdict: Verdict
    reason: str
    width: int | None = None
    max_width: int | None = None
    speed_gts: float | None = None
    max_speed_gts: float | None = None
    measured_at: str | None = None
    port: str | None = None
    lost_gb_s: float = 0.0


def judge(gpu: Device, devices: Mapping[str, Device], bridged: bool = False, integrated: bool = False) -> Link:
    """Judge the link of a card.

    lspci 3.8 and newer never remarks a port as downgraded, whatever it does, so that numbers alone are compared.

    :param devices: everything that was seen of the host, by address: the bridges above the card among them
    :param bridged: cards of this kind have bridges of their own, behind which the GPU's own link says nothing of the slot's
    :param integrated: it is a part of the processor
    """
    if gpu.asleep:
        return _unknown("it is asleep, and was not woken to be read: look again while it is in use")
    if gpu.dead:
        reason = f"{gpu.address} reads all ones: it is off the bus, or without power as a hybrid GPU is while it sleeps"
        return Link(Verdict.UNREACHABLE, reason, measured_at=gpu.address)
    if integrated:
        return _unknown("it is a part of the processor, and has no PCI Express link of its own")
    upstream = upstream_port(gpu, devices)
    if upstream is None and (bridged or _is_behind_bridges(gpu)):
        return _unknown(
            "it is behind bridges of the card itself, whose upstream port was not seen: only that shows the real link"
        )
    end = upstream or gpu
    port = _port_above(end, devices)
    if end.link:
        return _link(_Ends(end, end.link, port, gpu.load_percent))
    if port and port.link:
        return _by_port(port, port.link, gpu.load_percent)
    if end.denied:
        return _unknown(f"only root can read the capabilities of {end.address}")
    return _unknown(f"no link of {end.address} is shown: read it as root with lspci -vv, and in a guest ask the hypervisor")


def upstream_port(gpu: Device, devices: Mapping[str, Device]) -> Device | None:
    """The port with which a card that has bridges of its own is in its slot; None for a card without."""
    if vendor(gpu) not in ("amd", "intel"):
        return None
    found = None
    for bridge in above(gpu, devices):
        kind = _ON_CARD.get((bridge.vendor_id or "", bridge.device_id or ""))
        # Above a card's upstream port another switch of its vendor may follow, as in a Thunderbolt dock: no part of the card.
        if kind is None and found is None and vendor(bridge) == vendor(gpu):
            kind = bridge.port
        if kind not in (Port.UPSTREAM, Port.DOWNSTREAM):
            break
        if kind is Port.UPSTREAM:
            found = bridge
    return found


def gb_s(width: int, speed_gts: float) -> float:
    """Bandwidth in one direction, GB/s; 0 for a speed that no standard has."""
    return width * GB_S_PER_LANE.get(speed_gts, 0)


def _is_behind_bridges(gpu: Device) -> bool:
    """It shows what every Intel card shows behind its own bridges."""
    return vendor(gpu) == "intel" and gpu.link is not None and (gpu.link.max_width, gpu.link.max_speed_gts) == (1, 2.5)


def _port_above(end: Device, devices: Mapping[str, Device]) -> Device | None:
    """The port at the other end of a link, where its own end of it is seen."""
    port = next(iter(above(end, devices)), None)
    if port is None or port.link is None or not _is_port(port):
        return None
    # That of a virtual machine may claim less than what runs through it: then it says nothing.
    link = end.link or LinkState()
    too_narrow = port.link.max_width and link.width and port.link.max_width < link.width
    too_slow = port.link.max_speed_gts and link.speed_gts and port.link.max_speed_gts < link.speed_gts
    return None if too_narrow or too_slow else port


def _is_port(bridge: Device) -> bool:
    """Whether there is a link below a bridge, and not conventional PCI."""
    if bridge.port is None:
        # The kernel's driver takes ports alone (drivers/pci/pcie/portdrv.c), so that no root is needed to tell.
        return bridge.driver == "pcieport"
    return bridge.port in (Port.ROOT, Port.DOWNSTREAM)


@dataclass(frozen=True)
class _Ends:
    """A link: one end as it was measured, and the port at the other end where that was seen."""

    end: Device
    link: LinkState
    port: Device | None
    load: int | None

    @property
    def limit(self) -> LinkState:
        return self.port.link if self.port and self.port.link else LinkState()

    @property
    def width(self) -> int | None:
        """Lanes that both ends can."""
        return _least(self.link.max_width, self.limit.max_width)

    @property
    def speed(self) -> float | None:
        """GT/s that both ends can."""
        return _least(self.link.max_speed_gts, self.limit.max_speed_gts)

    @property
    def slowed(self) -> bool:
        # A speed for which the reader has no name is a newer one than all that it has names for.
        return self.link.speed_gts is not None and (self.speed is None or self.link.speed_gts < self.speed)

    @property
    def loaded(self) -> bool:
        return self.load is not None and self.load >= UNDER_LOAD


def _link(ends: _Ends) -> Link:
    verdict, reason, lost = _verdict(ends, ends.link.width, ends.width)
    return Link(
        verdict,
        reason,
        width=ends.link.width,
        max_width=ends.width,
        speed_gts=ends.link.speed_gts,
        max_speed_gts=ends.speed,
        measured_at=ends.end.address,
        port=ends.port.address if ends.port else None,
        lost_gb_s=round(lost, 2),
    )


def _verdict(ends: _Ends, width: int | None, possible: int | None) -> tuple[Verdict, str, float]:
    """:return: with a reason, and the bandwidth that is lost in GB/s"""
    link = ends.link
    if not width or not possible:
        numbers = f"{_number(width)} in use, {_number(possible)} possible"
        return Verdict.UNKNOWN, f"not all is shown of the lanes of {ends.end.address}: {numbers}", 0
    lanes = f"{width} of {possible} lanes at {ends.end.address}"
    speeds = f"{_number(link.speed_gts)} of {_number(ends.speed)} GT/s"
    if ends.slowed and ends.loaded:
        lanes = f"{lanes}, at {speeds} under a load of {ends.load} %"
    lost = _lost(ends, width, possible)
    if width < possible:
        return Verdict.NARROW, f"{lanes}: {_loss(ends, lost)}{'' if ends.port else '; the port above it was not seen'}", lost
    if ends.slowed and ends.loaded:
        return Verdict.SLOW, f"{lanes}: {_loss(ends, lost)}", lost
    slot = f"all that the port above it has; the card could have {link.max_width} lanes at {_number(link.max_speed_gts)} GT/s"
    if possible != link.max_width:
        return Verdict.SLOT, f"{lanes}, {slot}", 0
    if ends.slowed:
        return Verdict.IDLE, f"{lanes}, at {speeds}{' to save power' if ends.load is not None else ': measure it under load'}", 0
    if link.speed_gts is None:
        return Verdict.UNKNOWN, f"{lanes}, but their speed is not shown", 0
    if ends.speed != link.max_speed_gts:
        return Verdict.SLOT, f"{lanes} at {_number(link.speed_gts)} GT/s, {slot}", 0
    return Verdict.FULL, f"{lanes} at {_number(link.speed_gts)} GT/s: {gb_s(width, link.speed_gts):.1f} GB/s", 0


def _lost(ends: _Ends, width: int, possible: int) -> float:
    best = ends.speed or ends.link.speed_gts or 0
    return gb_s(possible, best) - gb_s(width, (ends.loaded and ends.link.speed_gts) or best)


def _loss(ends: _Ends, lost: float) -> str:
    if not lost:
        return "how much is lost is not known, since the full speed is not shown"
    return f"{'' if ends.speed else 'at least '}{lost:.1f} GB/s are lost"


def _by_port(port: Device, link: LinkState, load: int | None) -> Link:
    """Judge a card that shows no link by the port above it."""
    judged = replace(_link(_Ends(port, link, None, load)), port=port.address)
    if judged.verdict is Verdict.NARROW:
        reason = (
            f"it shows no link, so that what it can is not known; the port above it uses {link.width} of {link.max_width} lanes"
        )
        return replace(judged, verdict=Verdict.UNKNOWN, reason=reason, lost_gb_s=0.0)
    verdict = Verdict.SLOT if judged.verdict is Verdict.FULL else judged.verdict
    return replace(judged, verdict=verdict, reason=f"it shows no link of its own; the port above it: {judged.reason}")


def _least(*numbers: _Number | None) -> _Number | None:
    return min((number for number in numbers if number), default=None)


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:g}"


def _unknown(reason: str) -> Link:
    return Link(Verdict.UNKNOWN, reason)
