"""Machines of QEMU: a kernel of their own, PCI devices as the test wants them, and no way out but SSH from this computer.

There need not be a KVM: emulated, a machine answers after a minute.
"""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.conftest import Ended, run
from tests.recipe import alone, digest, folder_of

CACHE = Path("/var/cache/gpuquilt-vm")
RECIPE = Path(__file__).with_name("image.sh")
BOOT_RECIPE = Path(__file__).with_name("boot.sh")
SECONDS_TO_MAKE = 15 * 60
SECONDS_TO_BOOT = 400
COMMAND_LINE = "root=/dev/vda rw console=ttyS0 quiet mitigations=off no_timer_check"
"""On a busy computer the emulated timer can be late, which without the last one is the end of a boot; boot.sh has the same."""


@pytest.fixture(scope="session")
def image() -> Path:
    """The folder that image.sh makes, from the cache if it has this recipe's; machines only read it."""
    return folder_of(RECIPE, CACHE, SECONDS_TO_MAKE)


@pytest.fixture(scope="session")
def boot_disk(image: Path) -> Path:
    """The disk that boot.sh makes of the image, which boots through GRUB; likewise from the cache, and only read."""
    disk = image / f"boot-{digest(BOOT_RECIPE)}"
    with alone(CACHE):
        if not disk.exists():
            partial = disk.with_suffix(".partial")
            # What is killed leaves no mounts: they are in a namespace of its own.
            made = run("unshare", "--mount", "sh", str(BOOT_RECIPE), str(image), str(partial), timeout=SECONDS_TO_MAKE)
            assert made.status == 0, made.text
            partial.rename(disk)
    return disk


class Vm:
    """A machine: its disk is the image, and what it writes is gone when it stops.

    :param image: see the fixture of this name
    :param folder: where to put its console and what SSH needs to know
    :param devices: values of QEMU's option ``-device``
    :param command_line: further arguments of the kernel
    :param boot_disk: see the fixture of this name; with it the machine boots by itself, and its boot loader has the arguments
    """

    def __init__(
        self,
        image: Path,
        folder: Path,
        devices: Sequence[str] = (),
        command_line: str = "",
        boot_disk: Path | None = None,
    ) -> None:
        self.image = image
        self.boot_disk = boot_disk
        self.console = folder / "console"
        self.known_hosts = folder / "known_hosts"
        self.devices = devices
        self.command_line = f"{COMMAND_LINE} {command_line}"
        self.port = 0
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Vm:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def key(self) -> str:
        return str(self.image / "key")

    def start(self) -> None:
        """Boot it, and wait until it answers."""
        try:
            self._boot()
        except TimeoutError:
            # Emulated, one boot in many comes up without a network.
            self._boot()

    def _boot(self) -> None:
        """:raises TimeoutError: it does not answer, and is switched off"""
        self.port = free_port()
        host_key = (self.image / "host_key.pub").read_text()
        self.known_hosts.write_text(f"[127.0.0.1]:{self.port} {host_key}")
        # What ends the tests, however hard, ends QEMU: the kernel sees to it.
        self.process = subprocess.Popen(["setpriv", "--pdeathsig=KILL", *self._qemu()], stdin=subprocess.DEVNULL)
        try:
            self.wait()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Switch it off as a power cut would."""
        if self.process:
            self.process.kill()
            self.process.wait()

    def wait(self) -> None:
        """Wait until SSH answers and the drivers have found their devices.

        :raises TimeoutError: that takes too long
        """
        end = time.monotonic() + SECONDS_TO_BOOT
        while (ended := self.ssh("udevadm settle --timeout=30")).status != 0:
            assert self.process and self.process.poll() is None, "QEMU has ended"
            if time.monotonic() > end:
                raise TimeoutError(f"no answer but {ended.text!r}; the console says: {self.console.read_text()}")
            time.sleep(1)

    def ssh(self, command: str, user: str = "root", timeout: float = 60) -> Ended:
        """Run a shell command.

        :param user: root or person
        :param timeout: seconds
        """
        options = ["BatchMode=yes", "ConnectTimeout=10", f"UserKnownHostsFile={self.known_hosts}", "StrictHostKeyChecking=yes"]
        words = [word for option in options for word in ("-o", option)]
        return run(
            "ssh", "-F", "none", *words, "-i", self.key, "-p", str(self.port), f"{user}@127.0.0.1", command, timeout=timeout
        )

    def out(self, command: str, user: str = "root") -> str:
        """What a command prints; it must succeed."""
        ended = self.ssh(command, user)
        assert ended.status == 0, f"{command}: {ended.text}"
        return ended.output

    def _qemu(self) -> list[str]:
        disk = f"file={self.boot_disk or self.image / 'disk'},format=raw,if=none,id=disk,snapshot=on"
        network = f"user,id=network,restrict=on,hostfwd=tcp:127.0.0.1:{self.port}-:22"
        devices = [
            "intel-iommu,intremap=on",
            "virtio-blk-pci,drive=disk",
            "virtio-net-pci,netdev=network,romfile=",
            *self.devices,
        ]
        return [
            *("qemu-system-x86_64", "-machine", "q35,kernel-irqchip=split", "-accel", "tcg,thread=multi", "-cpu", "max"),
            *("-smp", "2", "-m", "1024", "-nodefaults", "-no-user-config", "-display", "none", "-serial", f"file:{self.console}"),
            *(() if self.boot_disk else self._kernel()),
            *("-drive", disk, "-netdev", network),
            *(word for device in devices for word in ("-device", device)),
        ]

    def _kernel(self) -> list[str]:
        kernel, initrd = (str(self.image / name) for name in ("kernel", "initrd"))
        return ["-kernel", kernel, "-initrd", initrd, "-append", self.command_line]


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
