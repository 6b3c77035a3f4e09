"""The order in which systemd starts our units at a boot, beside those of others that they are ordered by."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from roles.cluster.driver import Driver
from roles.cluster.state import LLAMA_SERVER, RPC_SERVER
from roles.firewall import rules
from roles.nvidia import texts

UNITS = Path(__file__).parent
OURS = {
    RPC_SERVER: (UNITS / "rpc_server/golden/container.service").read_text(),
    LLAMA_SERVER: (UNITS / "llama_server/golden/container.service").read_text(),
    rules.UNIT: rules.units()[rules.UNIT_FILE],
    texts.UNIT: texts.texts(Driver("580.178.04", 580, "proprietary", "nvidia", ()))[texts.UNIT_FILE],
}
"""On one host, in containers: what is ordered most."""

SERVICE = "[Unit]\nDescription=Of others\n{}\n[Service]\nType=oneshot\nExecStart=/bin/true\n"
OTHERS = {
    "nftables.service": "DefaultDependencies=no\nWants=network-pre.target\nBefore=network-pre.target",
    "nvidia-persistenced.service": "",
    "docker.service": "Wants=network-online.target\nAfter=network-online.target nftables.service",
}
"""Unit → its order, as packages of Debian bring it."""

REFRESH = "nvidia-cdi-refresh.service"
ORDERS = {
    "1.18": "",
    # Source: github.com/NVIDIA/nvidia-container-toolkit, pull request 1638, which 1746 has taken back.
    "1.19.0": "After=multi-user.target",
    # Source: pull request 2019 there.
    "release-1.20": "Before=docker.service containerd.service crio.service",
}
"""Version or branch of NVIDIA's container toolkit → the order of its service."""


def cycles(ours: Mapping[str, str], order: str, folder: Path) -> list[str]:
    """What systemd says of the cycles that it finds, of which it leaves a unit out: that may be ours.

    :param ours: unit → its text
    :param order: of NVIDIA's service
    """
    others = {unit: SERVICE.format(lines) for unit, lines in {**OTHERS, REFRESH: order}.items()}
    wants = folder / "multi-user.target.wants"
    wants.mkdir(parents=True)
    for unit, text in {**ours, **others}.items():
        (folder / unit).write_text(text)
        (wants / unit).symlink_to(folder / unit)
    # Those of the computer that the test runs on are not asked.
    environment = {"PATH": "/usr/bin:/bin", "SYSTEMD_UNIT_PATH": f"{folder}:/usr/lib/systemd/system"}
    command = ["systemd-analyze", "verify", "--man=no", "multi-user.target"]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return [line for line in found.stderr.splitlines() if "cycl" in line]


@pytest.mark.parametrize("version", ORDERS)
def test_there_is_no_cycle(version: str, tmp_path: Path) -> None:
    assert cycles(OURS, ORDERS[version], tmp_path) == []


@pytest.mark.parametrize("unit", OURS)
def test_one_would_be_found(unit: str, tmp_path: Path) -> None:
    waits = OURS[unit].replace("After=", f"After={REFRESH} ", 1)
    assert cycles({**OURS, unit: waits}, ORDERS["1.19.0"], tmp_path) != []


def test_device_files_are_there_before_they_are_described_to_docker() -> None:
    (line,) = [line for line in OURS[texts.UNIT].splitlines() if line.startswith("Before=")]
    assert line.removeprefix("Before=").split() == [REFRESH, "docker.service", RPC_SERVER, LLAMA_SERVER]
