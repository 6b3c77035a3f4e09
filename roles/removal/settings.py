"""What is to be taken back."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from roles.base.settings import RoleSettings

Name = Literal["llama_cpp", "docker", "nvidia", "intel", "amd", "passthrough"]
"""What can be taken back by itself: a role, and with ``llama_cpp`` all that serves it."""


def _words(value: object) -> object:
    # On the command line there are no lists.
    return value.split(",") if isinstance(value, str) else value


class Settings(RoleSettings):
    """Read by deploys/remove.py alone; give it on the command line, with `--data`."""

    remove: Annotated[list[Name], BeforeValidator(_words)] = Field(
        [],
        description="what is to be taken back, names with commas between them, such as remove=docker,nvidia: llama_cpp (services,"
        " firewall, releases, caches), docker, nvidia, intel, amd, passthrough",
    )
