"""What went wrong for others (group B of the field reports), as the host shows it, and the sentence that the user reads."""

from __future__ import annotations

from typing import Any

import pytest

from roles.docker import decisions
from roles.docker.decisions import exposed, loses_its_gpu, owed, problems, ready, unready
from roles.docker.seen import parse
from tests.unit.docker.examples import INFO, bare, settings, shown

NVIDIA_RUNTIME = {"nvidia": {"args": [], "path": "nvidia-container-runtime"}}

# B12: "could not select device driver … [[gpu]]": github.com/NVIDIA/nvidia-container-toolkit/issues/854.
CONFIGURED = (
    "changed 1796097100.000000000",
    "file {",
    'file     "runtimes": {',
    'file         "nvidia": {',
    'file             "args": [],',
    'file             "path": "nvidia-container-runtime"',
    "file         }",
    "file     }",
    "file }",
)
"""What `nvidia-ctk runtime configure --runtime=docker` leaves, after the daemon was started."""


def test_b12_the_runtime_is_in_the_file_and_the_daemon_does_not_know_it() -> None:
    assert owed(shown(*CONFIGURED)) == [
        "/etc/docker/daemon.json is newer than the daemon that runs",
        "it does not know the runtime nvidia, though /etc/docker/daemon.json says so",
    ]
    # A file that was put back with its old time.
    assert owed(shown("changed 1.0", *CONFIGURED[1:])) == [
        "it does not know the runtime nvidia, though /etc/docker/daemon.json says so"
    ]
    restarted = {**INFO, "Runtimes": {**INFO["Runtimes"], **NVIDIA_RUNTIME}}
    assert owed(shown("started 1796097101.000000000", *CONFIGURED, info=restarted)) == []


def test_b12_docker_is_a_snap() -> None:
    assert problems(bare("snap 24.0.5"), settings(), nvidia=True) == [
        "it has Docker 24.0.5 as a snap, which cannot reach GPUs and has another daemon.json: take it out (snap remove docker;"
        " its images and containers go with it), and run again."
    ]


# B13: containers lose GPUs after a daemon-reload: github.com/NVIDIA/nvidia-container-toolkit/issues/48.
DEVICE_ALLOW = """\
# This is a drop-in unit file extension, created via "systemctl set-property"
# or an equivalent operation. Do not edit.
[Scope]
DeviceAllow=
DeviceAllow=char-pts rwm
DeviceAllow=/dev/char/10:200 rwm
DeviceAllow=/dev/char/5:2 rwm
DeviceAllow=/dev/char/1:3 rwm
DeviceAllow=char-* m
DeviceAllow=block-* m
"""
"""50-DeviceAllow.conf of a container's scope."""

KNOWN = DEVICE_ALLOW.replace(
    "DeviceAllow=char-*", "DeviceAllow=/dev/char/195:0 rwm\nDeviceAllow=/dev/char/195:255 rwm\nDeviceAllow=char-*"
)
BY_HOOK = '[{"Driver":"","Count":-1,"DeviceIDs":null,"Capabilities":[["gpu"]],"Options":{}}]'
BY_CDI = '[{"Capabilities":null,"Count":0,"DeviceIDs":["nvidia.com/gpu=0"],"Driver":"cdi","Options":null}]'


def container(requests: str, conf: str, runtime: str = "runc") -> list[str]:
    """The lines of a container with this drop-in."""
    allowed = [line.removeprefix("DeviceAllow=") for line in conf.splitlines() if line.startswith("DeviceAllow=")]
    return [f"container c0ffee /worker {runtime} {requests}", *(f"allow c0ffee {device}" for device in allowed if device)]


@pytest.mark.parametrize(
    ("lines", "loses"),
    [
        (container(BY_HOOK, DEVICE_ALLOW), True),
        (container("null", DEVICE_ALLOW, "nvidia"), True),
        (container(BY_HOOK, KNOWN), False),
        (container(BY_CDI, KNOWN), False),
        # It has no GPU.
        (container("null", DEVICE_ALLOW), False),
        # Docker does without systemd (native.cgroupdriver=cgroupfs).
        (container(BY_HOOK, ""), False),
    ],
)
def test_b13_a_container_whose_gpu_systemd_does_not_know_of(lines: list[str], loses: bool) -> None:
    assert exposed(parse(lines).containers) == (["worker"] if loses else [])


def test_b13_what_is_said_of_it() -> None:
    assert loses_its_gpu("worker") == (
        "the container worker loses its GPU at the next daemon-reload (Failed to initialize NVML: Unknown Error), because systemd"
        " does not know of it: make the container anew, with --device nvidia.com/gpu=all in place of --gpus."
    )


# B14: the daemon knows GPUs by CDI alone, or by NVIDIA's runtime: github.com/NVIDIA/nvidia-container-toolkit/issues/1967,
# github.com/gpustack/gpustack/issues/3808.
NEW: dict[str, Any] = {**INFO, "ServerVersion": "29.7.2", "CDISpecDirs": ["/etc/cdi", "/var/run/cdi"]}
BY_CDI_ALONE = {
    **NEW,
    "DiscoveredDevices": [
        {"Source": "cdi", "ID": "nvidia.com/gpu=0"},
        {"Source": "cdi", "ID": "nvidia.com/gpu=GPU-0008bcf4-cae8-0120-a18f-bc344fb1c710"},
        {"Source": "cdi", "ID": "nvidia.com/gpu=all"},
    ],
}
BY_RUNTIME = {**INFO, "Runtimes": {**INFO["Runtimes"], **NVIDIA_RUNTIME}}


@pytest.mark.parametrize("info", [BY_CDI_ALONE, BY_RUNTIME])
def test_b14_either_way_is_good_enough(info: dict[str, Any]) -> None:
    assert ready(shown(info=info), ours=False)


def test_containers_of_ours_get_gpus_by_cdi_alone() -> None:
    """Whatever runtime Docker knows beside: github.com/NVIDIA/nvidia-container-toolkit/issues/434."""
    both = {**NEW, "Runtimes": BY_RUNTIME["Runtimes"]}
    assert ready(shown(info=BY_CDI_ALONE), ours=True)
    assert ready(shown(info=both), ours=False)
    older = shown("package nvidia-container-toolkit-base 1.17.8-1 installed", info=both)
    assert not ready(older, ours=True)
    assert unready(older, ours=True) == (
        "Docker cannot give a container a GPU: it finds no device nvidia.com/gpu=…; run nvidia-ctk cdi generate"
        " --output=/etc/cdi/nvidia.yaml there, or let the package nvidia-container-toolkit-base be of version 1.18 or newer,"
        " which does that by itself, and run again."
    )
    assert unready(shown(info=BY_RUNTIME), ours=True).startswith(
        "Docker cannot give a container a GPU: it does not use CDI; let /etc/docker/daemon.json say features.cdi = true"
    )


def test_b14_before_28_2_the_devices_are_not_listed() -> None:
    old = {**INFO, "CDISpecDirs": ["/etc/cdi", "/var/run/cdi"]}
    assert ready(shown("cdi /run/cdi/nvidia.yaml", info=old), ours=True)
    assert not ready(shown(info=old), ours=True)
    assert not ready(shown("cdi /run/cdi/nvidia.yaml", info=NEW), ours=True)


# The specification was written before the device was there: github.com/NVIDIA/nvidia-container-toolkit/pull/1979.
INCOMPLETE = ("driver", "cdi /run/cdi/nvidia.yaml", "incomplete /run/cdi/nvidia.yaml")


def test_b14_gpus_without_the_device_that_cuda_computes_with() -> None:
    there = shown(*INCOMPLETE, "package nvidia-container-toolkit-base 1.19.0-1 installed", info=BY_CDI_ALONE)
    assert not ready(there, ours=True) and not ready(there, ours=False)
    assert unready(there, ours=True) == (
        "Docker gives a container GPUs without /dev/nvidia-uvm, and CUDA cannot compute there: /run/cdi/nvidia.yaml does not name"
        " it, though it is there; run nvidia-ctk cdi generate --output=/run/cdi/nvidia.yaml there, and run again."
    )
    before_28_2 = shown(*INCOMPLETE, info={**INFO, "CDISpecDirs": ["/etc/cdi", "/var/run/cdi"]})
    assert not ready(before_28_2, ours=True) and "does not name it" in unready(before_28_2, ours=True)
    # Those of others may come by NVIDIA's runtime, whatever the specification says.
    assert ready(shown(*INCOMPLETE, info={**BY_CDI_ALONE, "Runtimes": BY_RUNTIME["Runtimes"]}), ours=False)
    # Without CDI it is not what is wrong.
    assert "does not use CDI" in unready(shown(*INCOMPLETE), ours=True)


@pytest.mark.parametrize(
    ("info", "sentence"),
    [
        (
            INFO,
            "Docker cannot give a container a GPU: it does not use CDI, and does not know the runtime nvidia; let"
            " /etc/docker/daemon.json say features.cdi = true, or see journalctl -u docker there, and run again.",
        ),
        (
            {**NEW, "DiscoveredDevices": [{"Source": "cdi", "ID": "amd.com/gpu=0"}]},
            "Docker cannot give a container a GPU: it finds no device nvidia.com/gpu=…, and does not know the runtime nvidia; see"
            " what nvidia-ctk cdi generate and journalctl -u nvidia-cdi-refresh say there, and run again.",
        ),
        ({}, "Docker does not answer: see journalctl -u docker there."),
    ],
)
def test_b14_neither_is_not(info: dict[str, Any], sentence: str) -> None:
    seen = shown("package nvidia-container-toolkit-base 1.19.0-1 installed", info=info)
    assert not ready(seen, ours=False)
    assert unready(seen, ours=False) == sentence


def test_b14_the_toolkit_keeps_its_version() -> None:
    assert decisions.preferences(settings(toolkit_version="1.18.2")).splitlines()[1:] == [
        "Package: libnvidia-container-tools libnvidia-container1 nvidia-container-toolkit nvidia-container-toolkit-base",
        "Pin: version 1.18.2-1",
        "Pin-Priority: 1001",
    ]
