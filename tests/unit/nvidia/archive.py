"""apt as it decides on a host, in a folder of its own: package lists that a test writes, and nothing is fetched or installed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import run


@dataclass(frozen=True)
class Package:
    """A package, or one version of it."""

    name: str
    version: str
    depends: str = ""

    def stanza(self, status: str = "") -> str:
        lines = [f"Package: {self.name}", f"Version: {self.version}", "Architecture: amd64", "Maintainer: nobody <n@example.org>"]
        if status:
            lines.append(f"Status: {status}")
        if self.depends:
            lines.append(f"Depends: {self.depends}")
        if not status:
            lines += [f"Filename: ./{self.name}_{self.version}.deb", "Size: 1", f"SHA256: {'0' * 64}"]
        return "\n".join([*lines, "Description: x", "", ""])


@dataclass(frozen=True)
class Archive:
    """Package sources and what is installed."""

    folder: Path

    def source(self, name: str, origin: str, label: str, packages: Sequence[Package]) -> None:
        """Add a package source."""
        there = self.folder / name
        there.mkdir()
        (there / "Packages").write_text("".join(package.stanza() for package in packages))
        (there / "Release").write_text(f"Origin: {origin}\nLabel: {label}\nDate: Mon, 30 Nov 2026 00:00:00 UTC\n")
        with (self.folder / "etc/sources.list").open("a") as file:
            file.write(f"deb [trusted=yes] file:{there} ./\n")

    def install(self, *packages: Package) -> None:
        """These are installed from now on."""
        text = "".join(package.stanza("install ok installed") for package in packages)
        (self.folder / "status").write_text(text)

    def preferences(self, name: str, text: str) -> None:
        (self.folder / "etc/preferences.d" / name).write_text(text)

    def apt(self, *words: str) -> list[str]:
        """What apt prints."""
        folder = self.folder
        options: Mapping[str, object] = {
            "Dir::State": folder / "state",
            "Dir::State::status": folder / "status",
            "Dir::Cache": folder / "cache",
            "Dir::Etc": folder / "etc",
            "Dir::Etc::main": "none",
            "Dir::Etc::parts": "none",
            "APT::Architecture": "amd64",
            "APT::Sandbox::User": "root",
            "Debug::NoLocking": 1,
        }
        given = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
        ended = run(words[0], *given, *words[1:], LC_ALL="C", APT_CONFIG="/dev/null")
        assert ended.status == 0, ended.text
        return ended.output.splitlines()

    def update(self) -> None:
        self.apt("apt-get", "update")

    def candidate(self, package: str) -> str:
        """The version that would be installed; empty where none would."""
        for line in self.apt("apt-cache", "policy", package):
            name, _, value = line.strip().partition(": ")
            if name == "Candidate":
                return "" if value == "(none)" else value
        return ""

    def simulation(self, *words: str) -> list[str]:
        """What ``apt-get --simulate`` prints."""
        return self.apt("apt-get", "--simulate", "-o", "APT::Install-Recommends=0", *words)


def archive(folder: Path) -> Archive:
    for name in ("state/lists/partial", "cache/archives/partial", "etc/preferences.d", "etc/sources.list.d"):
        (folder / name).mkdir(parents=True)
    (folder / "status").write_text("")
    (folder / "etc/sources.list").write_text("")
    return Archive(folder)


def nvidia(branch: int, point: str = "95.05", at_least: bool = True) -> list[Package]:
    """NVIDIA's driver as its own repository for Debian has it: the metapackage wants a version, or a newer one."""
    version = f"{branch}.{point}-1"
    needs = f">= {branch}.65" if at_least else f"= {version}"
    return [
        Package("nvidia-driver-cuda", version, f"nvidia-kernel-dkms ({needs}), libcuda1 ({needs}), nvidia-modprobe ({needs})"),
        Package("nvidia-kernel-dkms", version),
        Package("nvidia-kernel-open-dkms", version),
        Package("libcuda1", version, f"libnvidia-ptxjitcompiler1 (= {version})"),
        Package("libnvidia-ptxjitcompiler1", version),
        Package("nvidia-modprobe", version),
        Package(f"nvidia-driver-pinning-{branch}", f"{branch}-1"),
    ]
