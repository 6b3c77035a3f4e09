"""The settings of NVIDIA's driver that do not decide which one it is."""

from __future__ import annotations

from pydantic import Field

from roles.base.settings import RoleSettings


class Settings(RoleSettings):
    """Read for every host; which driver and which toolkit it gets is decided by `driver` and `cuda_toolkit`."""

    prefix = "nvidia_"

    repository: str | None = Field(
        None,
        pattern=r"^(https?|file)://?[^\s]*[^\s/]$",
        description="the address of NVIDIA's package repository for this host's distribution, or of a mirror of it, without a"
        " slash at its end: an http, https or file URL; default: NVIDIA's own",
    )
    repository_key: str | None = Field(
        None,
        pattern=r"^(https?|file)://?[^\s]+$",
        description="where that repository's signing key is fetched from: an http, https or file URL; default: 3bf863cc.pub in"
        " the repository",
    )
    repository_fingerprint: str = Field(
        "EB693B3035CD5710E231E123A4B469963BF863CC",
        pattern=r"^[0-9A-F]{40}$",
        description="the fingerprint of that key, 40 hexadecimal digits in upper case: a key with another one is refused",
    )
    toolkit: bool | None = Field(
        None,
        description="whether the CUDA toolkit of the plan is installed on this host itself, several GB: true or false; default:"
        " where llama.cpp is built for CUDA without Docker, and its run-time libraries alone where such a build comes from"
        " another host; with false you install what is needed, and `cmake_options` can name your nvcc (CMAKE_CUDA_COMPILER); with"
        " runtime = 'docker' none is installed, since the image has it",
    )
