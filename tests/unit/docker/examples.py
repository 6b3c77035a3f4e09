"""Hosts as they show themselves: outputs that were recorded, cut to what is read of them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from roles.docker.decisions import Texts
from roles.docker.seen import Seen, parse
from roles.docker.settings import Settings

TRIXIE = [
    "system debian trixie",
    "package docker-buildx 0.13.1+ds1-3 installed",
    "package docker-ce  not-installed",
    "package docker-ce-cli  not-installed",
    "package docker-cli 26.1.5+dfsg1-9+deb13u1+b1 installed",
    "package docker.io 26.1.5+dfsg1-9+deb13u1+b1 installed",
    "package podman-docker  not-installed",
    "candidate docker.io 26.1.5+dfsg1-9+deb13u1+b1",
    "candidate docker-cli 26.1.5+dfsg1-9+deb13u1+b1",
    "candidate docker-buildx 0.13.1+ds1-3",
    "started 1796097071.820900000",
    "state active",
    "boot enabled",
    "flag --containerd",
    "client",
    "changed 1796096955.231404509",
    'file {"live-restore": true, "log-opts": {"max-size": "10m", "max-file": "3"}}',
]
"""Debian 13 with its own Docker, which runs with what its file says."""

INFO: dict[str, Any] = {
    "ServerVersion": "26.1.5+dfsg1",
    "Runtimes": {"io.containerd.runc.v2": {"path": "runc"}, "runc": {"path": "runc"}},
    "LiveRestoreEnabled": True,
    "DockerRootDir": "/var/lib/docker",
    "Driver": "overlay2",
    "LoggingDriver": "json-file",
    "CgroupDriver": "systemd",
    "CDISpecDirs": [],
    "Swarm": {"NodeID": "", "LocalNodeState": "inactive"},
}
"""What that daemon says of itself."""


def shown(*lines: str, info: dict[str, Any] | None = None) -> Seen:
    """What a host shows that says these lines, beside those of `TRIXIE` whose first word they do not have."""
    words = {line.partition(" ")[0] for line in lines}
    rest = [line for line in TRIXIE if line.partition(" ")[0] not in words]
    return parse([*rest, *lines, f"info {json.dumps(INFO if info is None else info)}"])


def bare(*lines: str) -> Seen:
    """What a host without Docker shows, beside these lines."""
    return parse(["system debian trixie", "state inactive", *lines])


def with_text(seen: Seen, wanted: Texts) -> Seen:
    """The same host once its files say what is wanted."""
    return replace(seen, text=wanted.options, record=wanted.record or "")


def settings(**values: Any) -> Settings:
    return Settings(**{"engine": "distribution", **values})
