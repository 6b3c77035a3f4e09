"""A made-up host in a folder: what the facts' commands look at."""

from __future__ import annotations

import os
from pathlib import Path

from tests.conftest import Ended, run

LINK = ("current_link_width", "max_link_width", "current_link_speed", "max_link_speed")


class Host:
    """A folder with the files of sysfs and programs that only pretend.

    :param root: the folder
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.programs = root / "programs"
        self.programs.mkdir()

    def device(
        self, path: str, ids: str, driver: str = "", group: int | None = None, status: str = "active", **files: str
    ) -> Path:
        """Add a device.

        :param path: its address, after those of the bridges above it, with ``/`` between
        :param ids: class, vendor and device: ``030000 10de:1b06``
        :param status: what ``power/runtime_status`` says
        :param files: further files and their content
        """
        folder = self.root / "sys/devices/pci0000:00" / path
        class_id, _, names = ids.partition(" ")
        vendor, _, device = names.partition(":")
        content = {
            "class": f"0x{class_id}",
            "vendor": f"0x{vendor}",
            "device": f"0x{device}",
            "power/runtime_status": status,
        } | files
        for name, text in content.items():
            self.file(f"{folder.relative_to(self.root)}/{name}", text)
        self.link(f"sys/bus/pci/devices/{folder.name}", folder)
        if driver:
            self.link(f"sys/bus/pci/drivers/{driver}/{folder.name}", folder)
            self.link(f"{folder.relative_to(self.root)}/driver", self.root / "sys/bus/pci/drivers" / driver)
        if group is not None:
            self.link(f"sys/kernel/iommu_groups/{group}/devices/{folder.name}", folder)
            self.link(f"{folder.relative_to(self.root)}/iommu_group", self.root / f"sys/kernel/iommu_groups/{group}")
        return folder

    def file(self, name: str, text: str = "") -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n" if text else "")

    def link(self, name: str, target: Path) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(target)

    def program(self, name: str, script: str) -> None:
        """A program that stands for the real one."""
        path = self.programs / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def run(self, command: str) -> Ended:
        """Run a fact's command here."""
        return run("sh", "-c", command, PATH=f"{self.programs}:{os.environ['PATH']}")


def link_files(width: str, max_width: str, speed: str, max_speed: str) -> dict[str, str]:
    """The link files of a device, as the kernel writes them."""
    return dict(zip(LINK, (width, max_width, speed, max_speed), strict=True))
