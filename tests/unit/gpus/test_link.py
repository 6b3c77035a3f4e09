"""roles.gpus.link: one verdict for each state of a link, with what was measured, where, and what is lost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from roles.gpus.link import Link, Verdict, gb_s, judge
from roles.gpus.pci import Device, LinkState, Port

CARD = Device(
    "0000:01:00.0",
    class_id="0300",
    vendor_id="10de",
    device_id="2204",
    port=Port.ENDPOINT,
    parent="0000:00:01.0",
    link=LinkState(width=16, max_width=16, speed_gts=16, max_speed_gts=16),
)
PORT = Device(
    "0000:00:01.0",
    class_id="0604",
    vendor_id="8086",
    device_id="a70d",
    port=Port.ROOT,
    buses=(1, 1),
    link=LinkState(width=16, max_width=16, speed_gts=16, max_speed_gts=16),
)


def card(width: int | None = 16, speed: float | None = 16, load: int | None = None, **other: object) -> Device:
    return replace(CARD, link=LinkState(width, 16, speed, 16), load_percent=load, **other)  # type: ignore[arg-type]


def port(width: int, speed: float) -> Device:
    return replace(PORT, link=LinkState(width, width, speed, speed))


def judged(*devices: Device, bridged: bool = False, integrated: bool = False) -> Link:
    """The first is judged."""
    return judge(devices[0], {device.address: device for device in devices}, bridged, integrated)


@pytest.mark.parametrize(
    ("device", "verdict", "lost"),
    [
        (card(), Verdict.FULL, 0),
        (card(speed=2.5), Verdict.IDLE, 0),
        (card(speed=2.5, load=0), Verdict.IDLE, 0),
        (card(speed=2.5, load=9), Verdict.IDLE, 0),
        (card(speed=2.5, load=10), Verdict.SLOW, 27.5),
        (card(width=4), Verdict.NARROW, 23.63),
        (card(width=4, speed=2.5), Verdict.NARROW, 23.63),
        (card(width=4, speed=2.5, load=98), Verdict.NARROW, 30.5),
        (card(width=4, load=98), Verdict.NARROW, 23.63),
        (card(width=None), Verdict.UNKNOWN, 0),
        (card(width=0), Verdict.UNKNOWN, 0),
        (card(speed=None), Verdict.UNKNOWN, 0),
        (card(asleep=True, dead=True), Verdict.UNKNOWN, 0),
        (card(dead=True), Verdict.UNREACHABLE, 0),
    ],
)
def test_a_card_below_a_port_as_good_as_itself(device: Device, verdict: Verdict, lost: float) -> None:
    link = judged(device, PORT)
    assert (link.verdict, link.lost_gb_s) == (verdict, lost)


@pytest.mark.parametrize(
    ("device", "above", "verdict", "lost"),
    [
        (card(width=8), port(8, 16), Verdict.SLOT, 0),
        (card(width=8, speed=2.5), port(8, 16), Verdict.SLOT, 0),
        (card(width=8, speed=2.5, load=50), port(8, 16), Verdict.SLOW, 13.75),
        (card(speed=8), port(16, 8), Verdict.SLOT, 0),
        (card(speed=2.5), port(16, 8), Verdict.IDLE, 0),
        (card(width=4), port(8, 16), Verdict.NARROW, 7.88),
        (card(width=4, speed=8), port(8, 8), Verdict.NARROW, 3.94),
    ],
)
def test_a_card_below_a_port_that_can_less(device: Device, above: Device, verdict: Verdict, lost: float) -> None:
    link = judged(device, above)
    assert (link.verdict, link.lost_gb_s, link.port) == (verdict, lost, PORT.address)
    assert link.max_width == above.link.max_width if above.link else None


@pytest.mark.parametrize(
    ("device", "reason"),
    [
        (card(width=4), "4 of 16 lanes at 0000:01:00.0: 23.6 GB/s are lost; the port above it was not seen"),
        (
            card(width=4, speed=2.5, load=98),
            "4 of 16 lanes at 0000:01:00.0, at 2.5 of 16 GT/s under a load of 98 %: 30.5 GB/s are lost; "
            "the port above it was not seen",
        ),
        (card(speed=2.5), "16 of 16 lanes at 0000:01:00.0, at 2.5 of 16 GT/s: measure it under load"),
        (card(), "16 of 16 lanes at 0000:01:00.0 at 16 GT/s: 31.5 GB/s"),
    ],
)
def test_the_reason_has_the_numbers(device: Device, reason: str) -> None:
    assert judged(device).reason == reason


@pytest.mark.parametrize(
    ("speed", "load", "reason", "lost"),
    [
        (None, None, "how much is lost is not known", 0),
        (2.5, None, "at least 3.0 GB/s are lost", 3),
        (2.5, 98, "at least 3.0 GB/s are lost", 3),
    ],
)
def test_no_more_is_said_to_be_lost_than_is_known(speed: float | None, load: int | None, reason: str, lost: float) -> None:
    """The oldest lspci has no name for 16 GT/s."""
    link = judged(replace(CARD, link=LinkState(4, 16, speed, None), load_percent=load))
    assert link.verdict is Verdict.NARROW
    assert reason in link.reason
    assert link.lost_gb_s == lost


def test_a_slow_link_whose_full_speed_is_not_shown_loses_nobody_knows_how_much() -> None:
    link = judged(replace(CARD, link=LinkState(16, 16, 2.5, None), load_percent=98))
    assert (link.verdict, link.lost_gb_s) == (Verdict.SLOW, 0)
    assert "how much is lost is not known" in link.reason


def test_a_port_of_which_no_link_is_seen_says_nothing() -> None:
    assert judged(card(width=4), replace(PORT, link=None)).port is None


@pytest.mark.parametrize(
    ("kind", "driver", "verdict"),
    [
        (Port.ROOT, None, Verdict.SLOT),
        (Port.DOWNSTREAM, None, Verdict.SLOT),
        (Port.BRIDGE, None, Verdict.UNKNOWN),
        (Port.UPSTREAM, "pcieport", Verdict.UNKNOWN),
        (None, "pcieport", Verdict.SLOT),
        (None, None, Verdict.UNKNOWN),
    ],
)
def test_a_bridge_to_conventional_pci_is_not_the_other_end_of_a_link(
    kind: Port | None, driver: str | None, verdict: Verdict
) -> None:
    assert judged(replace(card(), link=None), replace(PORT, port=kind, driver=driver)).verdict is verdict


@pytest.mark.parametrize(
    ("link", "verdict"),
    [
        (LinkState(8, 8, 16, 16), Verdict.SLOT),
        (LinkState(8, 8, 2.5, 16), Verdict.IDLE),
        (LinkState(4, 8, 16, 16), Verdict.UNKNOWN),
        (LinkState(None, 8, None, 16), Verdict.UNKNOWN),
    ],
)
def test_a_card_without_a_link_is_judged_by_the_port(link: LinkState, verdict: Verdict) -> None:
    judgement = judged(replace(card(), link=None), replace(PORT, link=link))
    assert (judgement.verdict, judgement.measured_at, judgement.lost_gb_s) == (verdict, PORT.address, 0)
    assert "shows no link" in judgement.reason


@pytest.mark.parametrize(
    ("device", "part"),
    [
        (card(asleep=True), "asleep"),
        (replace(card(), link=None, denied=True), "only root"),
        (replace(card(), link=None), "in a guest ask the hypervisor"),
        (card(width=None), "? in use, 16 possible"),
        (card(speed=None), "speed is not shown"),
    ],
)
def test_what_cannot_be_seen_has_its_reason(device: Device, part: str) -> None:
    judgement = judged(device)
    assert judgement.verdict is Verdict.UNKNOWN
    assert part in judgement.reason


def test_a_part_of_the_processor_has_no_link_even_where_it_shows_one() -> None:
    assert judged(card(), PORT, integrated=True).verdict is Verdict.UNKNOWN


def test_a_card_known_to_have_bridges_needs_its_upstream_port() -> None:
    assert judged(replace(card(), vendor_id="1002"), PORT, bridged=True).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("vendor", "upstream", "downstream"),
    [("1002", "1478", "1479"), ("8086", "4fa0", "4fa4"), ("8086", "4fa1", "4fa4"), ("8086", "e2ff", "e2f0")],
)
@pytest.mark.parametrize("kinds", [(Port.UPSTREAM, Port.DOWNSTREAM), (None, None)])
def test_ids_or_kinds_tell_the_upstream_port_of_a_card(
    vendor: str, upstream: str, downstream: str, kinds: tuple[Port | None, Port | None]
) -> None:
    gpu = card(address="0000:03:00.0", vendor_id=vendor, parent="0000:02:00.0")
    inside = replace(CARD, address="0000:02:00.0", vendor_id=vendor, device_id=downstream, port=kinds[1], parent=CARD.address)
    outside = replace(card(width=4), vendor_id=vendor, device_id=upstream, port=kinds[0])
    link = judged(gpu, inside, outside, PORT, bridged=True)
    assert (link.verdict, link.width, link.measured_at, link.port) == (Verdict.NARROW, 4, CARD.address, PORT.address)


def test_what_every_card_of_intel_shows_inside_is_no_evidence() -> None:
    """Also of one that the catalog does not know."""
    assert judged(replace(card(), vendor_id="8086", link=LinkState(1, 1, 2.5, 2.5)), PORT).verdict is Verdict.UNKNOWN
    assert judged(replace(card(), link=LinkState(1, 1, 2.5, 2.5)), PORT).verdict is Verdict.FULL


@pytest.mark.parametrize("vendor", ["10de", "1a03"])
def test_cards_of_other_vendors_have_no_bridges_of_their_own(vendor: str) -> None:
    switch = replace(port(4, 8), vendor_id=vendor, port=Port.UPSTREAM)
    assert judged(card(vendor_id=vendor), switch).measured_at == CARD.address


def test_a_switch_above_a_card_of_nvidia_is_not_the_cards() -> None:
    """As in a Thunderbolt dock: the card's own link is that to the dock."""
    switch = replace(PORT, address="0000:00:01.0", port=Port.DOWNSTREAM, parent="0000:00:00.0")
    upstream = replace(port(4, 2.5), address="0000:00:00.0", port=Port.UPSTREAM)
    assert judged(card(), switch, upstream).measured_at == CARD.address


@pytest.mark.parametrize(
    ("width", "speed", "bandwidth"),
    [(1, 2.5, 0.25), (4, 5, 2.0), (8, 8, 7.88), (16, 16, 31.504), (16, 32, 63.008), (4, 64, 30.252), (16, 3, 0)],
)
def test_bandwidth(width: int, speed: float, bandwidth: float) -> None:
    assert gb_s(width, speed) == pytest.approx(bandwidth)
