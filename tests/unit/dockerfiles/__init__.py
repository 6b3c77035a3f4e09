"""The Dockerfile of one host of each kind, whole, as its plan makes it.

After a change that was meant, run ``python -m tests.unit.dockerfiles`` and read the difference.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from roles.cluster.dockerfile import dockerfile
from roles.cluster.plan import HostPlan
from tests.unit import labs
from tests.unit.cluster.examples import (
    ADA,
    ARC,
    BLACKWELL,
    NAVI,
    PASCAL,
    TURING,
    gpu_worker,
    head,
    plan_of,
)

HERE = Path(__file__).parent
SYSTEM = "ubuntu24.04"

CARDS = {
    "maxwell": "01:00.0 VGA compatible controller [0300]: NVIDIA Corporation GM204 [GeForce GTX 970] [10de:13c2] (rev a1)",
    "pascal": PASCAL,
    "volta": "01:00.0 3D controller [0302]: NVIDIA Corporation GV100GL [Tesla V100 PCIe 16GB] [10de:1db4] (rev a1)",
    "turing": TURING,
    "ampere": "01:00.0 VGA compatible controller [0300]: NVIDIA Corporation GA102 [GeForce RTX 3090] [10de:2204] (rev a1)",
    "ada": ADA,
    "hopper": "01:00.0 3D controller [0302]: NVIDIA Corporation GH100 [H100 PCIe] [10de:2331] (rev a1)",
    "blackwell": BLACKWELL,
    "arc-a": ARC,
    "rdna2": (
        "08:00.0 VGA compatible controller [0300]: Advanced Micro Devices, Inc. [AMD/ATI] Navi 21 [Radeon RX 6800/6800 XT]"
        " [1002:73bf] (rev c1)"
    ),
    "rdna3": (
        "08:00.0 VGA compatible controller [0300]: Advanced Micro Devices, Inc. [AMD/ATI] Navi 31 [Radeon RX 7900 XT/7900 XTX]"
        " [1002:744c] (rev c8)"
    ),
    "rdna4": NAVI,
}


@cache
def plans() -> dict[str, HostPlan]:
    """Name of the file → the plan of its host."""
    found = {f"reference-{name}": there for name, there in labs.plan("reference", runtime="docker").hosts.items()}
    workers = {name: gpu_worker(card, system=SYSTEM, runtime="docker") for name, card in CARDS.items()}
    workers["vulkan"] = gpu_worker(ARC, system=SYSTEM, runtime="docker", backend="vulkan")
    workers["cpu"] = gpu_worker(system=SYSTEM, runtime="docker")
    for name, worker in workers.items():
        plan = plan_of([worker, head()])
        assert plan.refusals == (), plan.refusals
        found[name] = plan.hosts["w1"]
    found["web-page"] = plan_of([gpu_worker(), head(runtime="docker", web_ui=True)]).hosts["head"]
    return found


def text(there: HostPlan) -> str:
    """The Dockerfile of a host's release."""
    return dockerfile(there.profile, there.commit, there.release)


def file(name: str) -> Path:
    return HERE / f"{name}.Dockerfile"
