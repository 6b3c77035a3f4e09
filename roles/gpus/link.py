"""The health of a GPU's PCI Express link. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from roles.gpus.pci import Device


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
    :param lost_gb_s: bandwidth in one direction that the card could have and has not, GB/s
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


def judge(gpu: Device, devices: Mapping[str, Device]) -> Link:
    """Judge the link of a card.

    :param devices: everything that was seen of the host, by address: the bridges above the card among them
    """
    raise NotImplementedError
