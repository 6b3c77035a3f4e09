"""The settings of Docker and of NVIDIA's container toolkit."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, field_validator

from roles.base.settings import RoleSettings
from roles.gpus.catalog import numbers

_Url = Annotated[str, StringConstraints(pattern=r"^(https?|file)://\S*[^\s/]$")]
_Fingerprint = Annotated[str, StringConstraints(pattern=r"^[0-9A-F]{40}$")]

REFRESHES = (1, 18)
"""The first toolkit that keeps Docker's list of GPUs up to date. Source: github.com/NVIDIA/nvidia-container-toolkit, release
notes of 1.18.0."""


class Settings(RoleSettings):
    """Read for the hosts of the groups `workers` and `heads`."""

    prefix = "docker_"
    groups = frozenset({"workers", "heads"})

    engine: Literal["auto", "none", "distribution", "docker"] = Field(
        "auto",
        description="where Docker comes from on a host that is to have it: distribution (its own packages) or docker (Docker's"
        " repository); one that is there already and new enough stays, whichever it is; none: none is installed, and one that is"
        " there is left alone; auto: none, but with runtime = 'docker' distribution, or docker where GPUs of NVIDIA compute and"
        " the distribution's is too old for them",
    )
    options: dict[str, Any] = Field(
        {},
        description="what you want in /etc/docker/daemon.json beside what is there, a dictionary such as"
        " {'data-root': '/srv/docker'}",
    )
    repository: _Url | None = Field(
        None,
        description="the URL of Docker's package repository or of a mirror of it, without a slash at its end; default: Docker's"
        " for the distribution, https://download.docker.com/linux/debian or /ubuntu",
    )
    repository_key: _Url | None = Field(
        None, description="the URL of the key that signs that repository; default: gpg, below the repository's"
    )
    # Source: docs.docker.com/engine/install/ubuntu.
    repository_fingerprint: _Fingerprint = Field(
        "9DC858229FC7DD38854AE2D88D81803C0EBFCD88",
        description="the fingerprint of that key, 40 hexadecimal digits; another key is refused",
    )
    # The newest before 1.19.1, which writes CDI specifications of version 0.7.0 that older runtimes cannot read
    # (github.com/NVIDIA/nvidia-container-toolkit/issues/1860), and after which CUDA was seen to fail in containers (1967).
    toolkit_version: Annotated[str, StringConstraints(pattern=r"^[0-9]+\.[0-9]+\.[0-9]+$")] = Field(
        "1.19.0",
        description="the version of NVIDIA's container toolkit on hosts with Docker and GPUs of NVIDIA, 1.18.0 or newer, such as"
        " '1.19.0'; one that you have installed yourself stays",
    )
    toolkit_repository: _Url = Field(
        "https://nvidia.github.io/libnvidia-container/stable/deb/amd64",
        description="the URL of the toolkit's package repository or of a mirror of it, without a slash at its end",
    )
    toolkit_key: _Url = Field(
        "https://nvidia.github.io/libnvidia-container/gpgkey", description="the URL of the key that signs that repository"
    )
    toolkit_fingerprint: _Fingerprint = Field(
        "C95B321B61E88C1809C4F759DDCAE044F796ECB0",
        description="the fingerprint of that key, 40 hexadecimal digits; another key is refused",
    )

    @field_validator("toolkit_version")
    @classmethod
    def _keeps_specifications(cls, version: str) -> str:
        if numbers(version) < REFRESHES:
            raise ValueError("it does not keep Docker's list of GPUs up to date, which the toolkit does from 1.18.0 on")
        return version
