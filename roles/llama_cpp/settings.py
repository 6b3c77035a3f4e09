"""Where llama.cpp's source comes from, and how it is built."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field, field_validator

from roles.base.settings import RoleSettings


class Settings(RoleSettings):
    """Read for every host; only those that build use them."""

    prefix: ClassVar[str] = "llama_cpp_"

    repository: str = Field(
        "https://github.com/ggml-org/llama.cpp.git",
        description="the git repository that has the commit: an https, ssh, git or file URL, user@host:path, or an absolute"
        " path on the host that builds",
    )
    jobs: int = Field(
        0,
        ge=0,
        description="how many compilers run at once, a whole number; 0: as many as the host has cores, and memory for",
    )

    @field_validator("repository")
    @classmethod
    def _can_be_fetched(cls, value: str) -> str:
        # git would take a leading dash for an option, and a relative path as relative to our own folder there.
        local = value.startswith("/")
        remote = ":" in value and not value.startswith(("-", ".", ":"))
        if not (local or remote) or any(letter.isspace() for letter in value):
            raise ValueError("it is neither a URL nor an absolute path")
        return value
