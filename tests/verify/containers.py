"""What Docker and the kernel show of our containers and images, and how their answers are read. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

REPOSITORY = "gpuquilt/llama.cpp"
"""All images of ours are called so; their tags are the names of the releases."""

REVISION = "org.opencontainers.image.revision"
"""The label that names the commit."""
RELEASE = "gpuquilt.release"
"""The label that all images of ours have, and so all containers of them."""


def image_command(name: str) -> str:
    """Shows an image by whatever name; see `image`."""
    return f"docker image inspect {name} 2>/dev/null || true"


@dataclass(frozen=True)
class Image:
    """A container image.

    :param id: ``sha256:`` and 64 hexadecimal digits; empty where there is none
    """

    id: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


def image(text: str) -> Image:
    """Read the answer to `image_command`."""
    found: list[dict[str, Any]] = json.loads(text or "[]")
    return Image(found[0]["Id"], found[0]["Config"].get("Labels") or {}) if found else Image()


CONTAINERS_COMMAND = """
containers=$(docker ps --all --quiet --no-trunc)
[ -z "$containers" ] || docker inspect $containers
"""
"""Shows all containers of a host; see `containers`."""


@dataclass(frozen=True)
class Container:
    """A container, whether it runs or not.

    :param image: as `Image.id`
    :param ours: it is called like one of ours, or is one of an image of ours
    :param devices: what `docker run --device` was told
    :param writable: what it can change of the host
    """

    name: str
    image: str
    ours: bool
    devices: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()


def containers(text: str) -> list[Container]:
    """Read the answer to `CONTAINERS_COMMAND`."""
    return [_container(found) for found in json.loads(text or "[]")]


def _container(found: Mapping[str, Any]) -> Container:
    name = found["Name"].removeprefix("/")
    settings = found["HostConfig"]
    return Container(
        name=name,
        image=found["Image"],
        ours=name.startswith("gpuquilt-") or RELEASE in (found["Config"]["Labels"] or {}),
        devices=(
            *(device["PathOnHost"] for device in settings["Devices"] or []),
            *(word for request in settings["DeviceRequests"] or [] for word in _requested(request)),
        ),
        writable=tuple(mount["Source"] for mount in found["Mounts"] if mount["RW"]),
    )


def _requested(request: Mapping[str, Any]) -> list[str]:
    """Devices that were asked for by CDI's names; another way to ask, such as `--gpus`, as Docker has written it down."""
    return list(request["DeviceIDs"]) if request["Driver"] == "cdi" else [json.dumps(request)]


def confinement_command(pid: int) -> str:
    """Shows what the kernel lets a process do; see `gaps`."""
    return f"""
sed -n '/^\\(Uid\\|Cap\\|NoNewPrivs\\)/s/:/=/p' /proc/{pid}/status
awk '$5 == "/" {{ sub(",.*", "", $6); print "Root=" $6 }}' /proc/{pid}/mountinfo
[ "$(readlink /proc/{pid}/ns/net)" != "$(readlink /proc/1/ns/net)" ] || echo HostNetwork=
"""


def gaps(text: str) -> list[str]:
    """What a process may do that a container of ours may not, from the answer to `confinement_command`; none as a rule."""
    pairs = [line.partition("=")[::2] for line in text.splitlines()]
    seen = {key: value.split() for key, value in pairs}
    capabilities = [f"{key} {value[0]}" for key, value in seen.items() if key.startswith("Cap") and int(value[0], 16)]
    found = {
        "runs as root": "0" in seen["Uid"],
        f"has capabilities ({', '.join(capabilities)})": bool(capabilities),
        "may gain privileges": seen["NoNewPrivs"] != ["1"],
        "can write to its root file system": seen["Root"] != ["ro"],
        "has a network of its own": "HostNetwork" not in seen,
    }
    return [gap for gap, is_so in found.items() if is_so]
