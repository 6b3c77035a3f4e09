"""The settings that decide what the cluster is."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints

from roles.base.settings import RoleSettings
from roles.cluster.endpoints import well_formed


class Settings(RoleSettings):
    """Read for every host; what holds for all hosts belongs to the group `all`."""

    commit: str = Field(
        pattern=r"^[0-9a-f]{40}$",
        description="the llama.cpp commit that every host runs: all 40 hexadecimal digits, as `git rev-parse` prints them",
    )
    network: IPv4Network = Field(
        description="the cluster network in CIDR notation, e.g. 192.168.1.0/24: workers listen on their address in it"
    )
    address: IPv4Address | None = Field(
        None,
        description="this host's IPv4 address in the cluster network; needed only where it has several, or none yet",
    )
    rpc_port: int = Field(50052, ge=1, le=65535, description="the TCP port of this worker, 1 to 65535")
    http_port: int = Field(8080, ge=1, le=65535, description="the TCP port of the head's HTTP endpoint, 1 to 65535")
    endpoints: list[Annotated[str, AfterValidator(well_formed)]] | None = Field(
        None,
        description="the workers that a head uses, in this order, each as host:port with a worker's name in the inventory or"
        " its IPv4 address, e.g. 192.168.1.11:50052; default: every worker, in the order of the inventory",
    )
    backend: Literal["cpu"] = Field("cpu", description="what computes on this host: cpu")
    web_ui: bool = Field(False, description="whether llama-server is built with its web page: true or false")
    cmake_options: dict[Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_]+$")], str] = Field(
        {}, description="CMake options of llama.cpp that override the plan's, a dictionary such as {'GGML_LTO': 'ON'}"
    )
