"""The settings of a worker."""

from __future__ import annotations

from ipaddress import IPv4Address
from typing import Annotated

from pydantic import AfterValidator, Field, StringConstraints, ValidationInfo, field_validator

from roles.base.settings import RoleSettings
from roles.base.units import printable, variables

EVERY_NETWORK = IPv4Address("0.0.0.0")

OWN_FLAGS = {
    "-H": "host",
    "--host": "host",
    "-t": "threads",
    "--threads": "threads",
    "-d": "devices",
    "--device": "devices",
    "-c": "cache",
    "--cache": "cache",
}
"""Flag of the RPC server → the setting that it belongs to."""


class Settings(RoleSettings):
    """Read for the hosts of the group `workers`."""

    prefix = "rpc_server_"
    groups = frozenset({"workers"})

    listen_on_every_network: bool = Field(
        False,
        description="true lets the RPC server listen on 0.0.0.0: it has no authentication, and whoever reaches it can take over"
        " the host; the firewall still lets in the heads alone",
    )
    host: IPv4Address | None = Field(
        None,
        description="the IPv4 address to listen on; default: this host's address in the cluster network",
    )
    threads: int | None = Field(
        None, ge=1, description="CPU threads of the CPU device, 1 or more; default: llama.cpp's, half of the CPUs"
    )
    devices: list[Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.:\[\]-]+$")]] | None = Field(
        None,
        min_length=1,
        description="the devices to lend, as llama.cpp names them, e.g. ['CUDA0'] (CUDA's are numbered as nvidia-smi"
        " numbers them); default: every GPU, or else the CPU",
    )
    cache: bool = Field(
        True, description="whether tensors that heads send are kept on disk, so that the next start is quicker: true or false"
    )
    cache_days: int = Field(
        30, ge=1, description="days after which a kept tensor that nothing has used is deleted, a whole number from 1 on"
    )
    environment: Annotated[dict[str, str], AfterValidator(variables)] = Field(
        {}, description="variables for the RPC server, a dictionary of texts such as {'GGML_CUDA_DISABLE_GRAPHS': '1'}"
    )
    extra_arguments: list[Annotated[str, AfterValidator(printable)]] = Field(
        [], description="further arguments for the RPC server, a list with one text for each word"
    )

    @field_validator("host")
    @classmethod
    def _is_reachable_and_chosen(cls, host: IPv4Address | None, info: ValidationInfo) -> IPv4Address | None:
        if host is not None and host.is_loopback:
            raise ValueError("no head on another host could reach it")
        if host == EVERY_NETWORK and not info.data.get("listen_on_every_network"):
            raise ValueError("it would listen on every network; if you mean it, set rpc_server_listen_on_every_network to true")
        return host

    @field_validator("extra_arguments")
    @classmethod
    def _are_not_ours(cls, words: list[str]) -> list[str]:
        for word in words:
            if word in ("-p", "--port"):
                raise ValueError(f"{word} belongs to the setting rpc_port")
            if word in OWN_FLAGS:
                raise ValueError(f"{word} belongs to the setting {cls.prefix}{OWN_FLAGS[word]}")
        return words
