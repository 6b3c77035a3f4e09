"""A repository of NVIDIA's that a test makes: signed, with packages of no content, two branches of the driver in it."""

from __future__ import annotations

import base64
import io
import subprocess
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from tests.sandbox.conftest import Machine
from tests.unit.base.debian import Key, make_key, make_package

FOLDER = "/srv/nvidia"
HOLD = "/run/gpuquilt-test-hold"
"""While this file is there, the package of the module is being configured, and an initial RAM disk made."""
WAIT = f"while [ -e {HOLD} ]; do sleep 0.1; done"


@dataclass(frozen=True)
class Archive:
    """The repository, once it is on a machine."""

    fingerprint: str
    address: str = f"file://{FOLDER}"
    key: str = f"file://{FOLDER}/key"

    @property
    def settings(self) -> Mapping[str, str]:
        """What an inventory says of it."""
        return {
            "nvidia_repository": self.address,
            "nvidia_repository_key": self.key,
            "nvidia_repository_fingerprint": self.fingerprint,
        }


def packages(folder: Path, branch: int) -> list[Path]:
    """The packages of the catalog's offer for Debian 12 and what they need; each wants a version, or a newer one."""
    version = f"{branch}.95.05-1"
    needs = f">= {branch}.65"
    module = f"nvidia-kernel-dkms ({needs}) | nvidia-kernel-open-dkms ({needs})"
    return [
        make_package(folder, f"nvidia-driver-pinning-{branch}", f"{branch}-1"),
        make_package(folder, "nvidia-kernel-dkms", version, postinst=WAIT),
        make_package(folder, "nvidia-kernel-open-dkms", version),
        make_package(folder, "libcuda1", version, Depends=f"libnvidia-ptxjitcompiler1 (= {version})"),
        make_package(folder, "libnvidia-ptxjitcompiler1", version),
        make_package(folder, "nvidia-modprobe", version),
        make_package(
            folder,
            "nvidia-driver-cuda",
            version,
            Depends=f"{module}, libcuda1 ({needs}), nvidia-modprobe ({needs})",
        ),
    ]


def old_packages(folder: Path) -> list[Path]:
    """The driver that was there before, whose module cannot be built, and what somebody has built upon it."""
    version = "535.261.03-1"
    return [
        make_package(folder, "nvidia-kernel-dkms", version, postinst="exit 10"),
        make_package(folder, "libcuda1", version, Depends=f"nvidia-alternative (= {version})"),
        make_package(folder, "nvidia-alternative", version),
        make_package(folder, "renderer", "1.0", Depends="nvidia-alternative"),
    ]


def publish(machine: Machine, folder: Path) -> Archive:
    """Make it, and put it on a machine."""
    key = make_key(folder / "signing")
    built = folder / "packages"
    built.mkdir()
    # Headers of no kernel, so that the machine need not fetch a compiler.
    headers = make_package(built, "linux-headers-amd64", "99")
    found = [*packages(built, 580), *packages(built, 590), *old_packages(built), headers]
    index = "".join(_entry(package) for package in found)
    files = {package.name: package.read_bytes() for package in found}
    files |= {"Packages": index.encode(), "InRelease": _signed(key, index), "key": key.file.read_bytes()}
    machine.out(f"mkdir -p {FOLDER} && echo {_packed(files)} | base64 -d | tar -xz -C {FOLDER}")
    return Archive(key.fingerprint)


def _entry(package: Path) -> str:
    content = package.read_bytes()
    control = subprocess.run(["dpkg-deb", "-f", str(package)], capture_output=True, text=True, check=True).stdout
    return f"{control}Filename: ./{package.name}\nSize: {len(content)}\nSHA256: {sha256(content).hexdigest()}\n\n"


def _signed(key: Key, index: str) -> bytes:
    text = (
        "Origin: NVIDIA\nLabel: NVIDIA CUDA\nArchitectures: amd64\nDate: Sat, 01 Nov 2025 00:00:00 UTC\nSHA256:\n"
        f" {sha256(index.encode()).hexdigest()} {len(index)} Packages\n"
    )
    command = ["gpg", "--homedir", str(key.home), "--batch", "--quiet", "--passphrase", "", "--clearsign"]
    signed = subprocess.run(command, input=text.encode(), capture_output=True, check=True).stdout
    subprocess.run(["gpgconf", "--homedir", str(key.home), "--kill", "all"], check=True)
    return signed


def _packed(files: Mapping[str, bytes]) -> str:
    """A compressed archive in the letters of a command line."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o644
            tar.addfile(entry, io.BytesIO(content))
    return base64.b64encode(packed.getvalue()).decode()
