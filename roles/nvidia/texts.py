"""The files that keep a host at its driver, and nouveau away from its GPUs. Pure."""

from __future__ import annotations

from roles.base.apt import PREFERENCES
from roles.base.templates import render
from roles.cluster.driver import Driver
from roles.cluster.state import LLAMA_SERVER, RPC_SERVER
from roles.nvidia.parts import NAMES, TOOLS, origin

# apt goes by the first entry that fits a package, file by file in the order of their names: NVIDIA's own cuda-repository-pin-600
# and nvidia-driver-pinning-* must come after it.
PINS = f"{PREFERENCES}/00gpuquilt-nvidia"
UNATTENDED = "/etc/apt/apt.conf.d/52gpuquilt-nvidia"
MODPROBE = "/etc/modprobe.d/gpuquilt-nvidia.conf"
UNIT = "gpuquilt-nvidia.service"
UNIT_FILE = f"/etc/systemd/system/{UNIT}"
FORGOTTEN = f"{MODPROBE}.removed"
"""How that file is called while it is being taken back."""
FILES = (PINS, UNATTENDED, MODPROBE, UNIT_FILE)

PERSISTENCE = "nvidia-persistenced.service"
BEFORE = ("nvidia-cdi-refresh.service", "docker.service", RPC_SERVER, LLAMA_SERVER)
"""What must find the device files. The first is of NVIDIA's container toolkit, and describes to Docker those that are there; one
that came later would be in no container (github.com/NVIDIA/nvidia-container-toolkit/pull/1979)."""


def texts(driver: Driver) -> dict[str, str]:
    """Path → text of what a host with this driver is to have."""
    return {
        PINS: pins(driver),
        UNATTENDED: render("nvidia/unattended.conf"),
        MODPROBE: render("nvidia/modprobe.conf"),
        UNIT_FILE: render(f"systemd/{UNIT}.j2", before=" ".join(BEFORE), after=PERSISTENCE),
    }


def pins(driver: Driver) -> str:
    """Preferences of apt by which no part of another branch is ever installed; nothing is preferred or downgraded."""
    tools = TOOLS if origin(driver) != "nvidia" else ()
    return render("nvidia/preferences.j2", branch=driver.branch, names=NAMES, tools=tools, others=other_branches(driver.branch))


def other_branches(branch: int) -> str:
    """A regular expression for the versions of every branch but one; POSIX has no way to say "not this"."""
    first, second, third = list(str(branch))
    numbers = f"{_other(first)}[0-9][0-9]|{first}{_other(second)}[0-9]|{first}{second}{_other(third)}"
    return f"^([0-9]+:)?({numbers})[.][0-9]"


def _other(digit: str) -> str:
    return f"[{'0123456789'.replace(digit, '')}]"
