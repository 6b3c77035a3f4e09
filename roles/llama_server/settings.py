"""The settings of a head."""

from __future__ import annotations

from ipaddress import IPv4Address
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, NonNegativeFloat, NonNegativeInt, ValidationInfo, field_validator

from roles.base.settings import RoleSettings
from roles.base.units import printable, variables

EVERY_NETWORK = IPv4Address("0.0.0.0")

MAXIMUM_DEVICES = 15
"""llama.cpp refuses a tensor split with as many values as it has room for devices, 16 (common/arg.cpp)."""

FOREIGN_FLAGS = {
    "-m": "model_source",
    "--model": "model_source",
    "--port": "http_port",
    "--rpc": "endpoints",
}
OWN_FLAGS = {
    "--host": "host",
    "-c": "context_size",
    "--ctx-size": "context_size",
    "-ngl": "gpu_layers",
    "--gpu-layers": "gpu_layers",
    "--n-gpu-layers": "gpu_layers",
    "-np": "parallel",
    "--parallel": "parallel",
    "-ts": "tensor_split",
    "--tensor-split": "tensor_split",
}
"""Flag of llama-server → the setting that it belongs to, of another role and of this one."""

SHUTTING_FLAGS = frozenset({"--api-key", "--api-key-file", "--api-prefix", "--ssl-cert-file", "--ssl-key-file"})
"""Flags that the question of a switch would not get past: it goes to the plain URL, without a key."""


class Settings(RoleSettings):
    """Read for the hosts of the group `heads`."""

    prefix = "llama_server_"
    groups = frozenset({"heads"})

    listen_on_every_network: bool = Field(
        False,
        description="true lets llama-server listen on 0.0.0.0: whoever reaches any address of the host can use the model",
    )
    host: IPv4Address | None = Field(
        None,
        description="the IPv4 address to listen on, 127.0.0.1 for this host alone; default: its address in the cluster network",
    )
    context_size: int = Field(
        0, ge=0, description="tokens of context, all slots together; 0: as many as the model was trained on"
    )
    gpu_layers: NonNegativeInt | Literal["auto", "all"] | None = Field(
        None,
        description="layers of the model on GPUs, those of workers included: a number, 'auto' or 'all'; default: llama.cpp's",
    )
    parallel: int | None = Field(None, ge=1, description="requests that are served at once, 1 or more; default: llama.cpp's")
    tensor_split: list[NonNegativeFloat] | None = Field(
        None,
        min_length=1,
        max_length=MAXIMUM_DEVICES,
        description="the share of the model for each device, the workers' first, a list of at most 15 numbers such as [3, 1];"
        " default: by free memory",
    )
    environment: Annotated[dict[str, str], AfterValidator(variables)] = Field(
        {}, description="variables for llama-server, a dictionary of texts such as {'GGML_CUDA_DISABLE_GRAPHS': '1'}"
    )
    extra_arguments: list[Annotated[str, AfterValidator(printable)]] = Field(
        [], description="further arguments for llama-server, a list with one text for each word, such as ['--alias', 'gpt-oss']"
    )
    start_timeout: int = Field(600, ge=1, description="seconds until the model must be loaded, the wait for workers included")
    check_prompt: str = Field(
        "The capital city of France is called", min_length=1, description="the text that a started head has to go on with"
    )
    check_answer: str = Field(
        "Paris",
        min_length=1,
        validate_default=True,
        description="what its answer at temperature 0 must contain, a text that is not in llama_server_check_prompt itself",
    )
    check_timeout: int = Field(120, ge=1, description="seconds until the answer must be there")

    @field_validator("host")
    @classmethod
    def _is_chosen(cls, host: IPv4Address | None, info: ValidationInfo) -> IPv4Address | None:
        if host == EVERY_NETWORK and not info.data.get("listen_on_every_network"):
            raise ValueError("it would listen on every network; if you mean it, set llama_server_listen_on_every_network to true")
        return host

    @field_validator("tensor_split")
    @classmethod
    def _gives_somebody_something(cls, shares: list[float] | None) -> list[float] | None:
        if shares is not None and not any(shares):
            raise ValueError("no device would get anything")
        return shares

    @field_validator("extra_arguments")
    @classmethod
    def _are_not_ours(cls, words: list[str]) -> list[str]:
        for word in words:
            if word in FOREIGN_FLAGS:
                raise ValueError(f"{word} belongs to the setting {FOREIGN_FLAGS[word]}")
            if word in OWN_FLAGS:
                raise ValueError(f"{word} belongs to the setting {cls.prefix}{OWN_FLAGS[word]}")
            if word in SHUTTING_FLAGS:
                raise ValueError(
                    f"{word} would shut out the question that a started head must answer, so that every switch would go back:"
                    " put a proxy that asks for a key or speaks TLS in front of it"
                )
        return words

    @field_validator("check_answer")
    @classmethod
    def _is_no_echo(cls, answer: str, info: ValidationInfo) -> str:
        if answer in info.data.get("check_prompt", ""):
            raise ValueError("the prompt contains it, so that an echo would pass")
        return answer
