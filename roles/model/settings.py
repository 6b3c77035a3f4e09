"""The settings of the model."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Annotated, ClassVar, Self
from urllib.parse import unquote, urlsplit

from pydantic import AfterValidator, Field, field_validator, model_validator

from roles.base.settings import RoleSettings
from roles.model.split import problem_of_names

SCHEMES = ("http", "https", "file")

DIGITS = 12
"""How much of a hash names a folder."""


def in_place(source: str) -> bool:
    """Whether a source is a path on the head, used where it lies."""
    return source.startswith("/")


def file_name(source: str) -> str:
    """The name that the file of a source has in the end: the last part of its path; empty where there is none."""
    return (source if in_place(source) else unquote(urlsplit(source).path)).rpartition("/")[2]


def _usable(source: str) -> str:
    if not in_place(source):
        parts = urlsplit(source)
        if parts.scheme not in SCHEMES:
            kind = parts.scheme or "a relative path"
            raise ValueError(f"{kind} is none of {', '.join(SCHEMES)}, and it does not begin with a slash")
        if parts.scheme != "file" and not parts.hostname:
            raise ValueError("the URL names no server")
    if file_name(source) in ("", ".", ".."):
        raise ValueError("it names no file")
    if not (source + file_name(source)).isprintable():
        raise ValueError("it has a line break or another character that cannot be printed")
    return source


Source = Annotated[str, AfterValidator(_usable)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-fA-F]{64}$"), AfterValidator(str.lower)]


class Settings(RoleSettings):
    """Read for every head. A single value stands for a list of one."""

    prefix: ClassVar[str] = "model_"
    groups: ClassVar[frozenset[str]] = frozenset({"heads"})

    source: tuple[Source, ...] = Field(
        description="the model's GGUF file: an http, https or file URL that the head can reach, or an absolute path on the head,"
        " which is used where it lies; for a split model the list of all its parts, in order",
    )
    sha256: tuple[Sha256, ...] = Field(
        description="the file's SHA-256, 64 hexadecimal digits, as `sha256sum` prints it; for a split model the list of its"
        " parts' hashes, in the same order",
    )
    folder: str = Field(
        "/srv/models",
        pattern=r"^(/[^/\n]+)+$",
        description="the folder on the head that downloads go to, each model into a folder of its own there: an absolute path"
        " without a slash at its end",
    )

    @field_validator("source", "sha256", mode="before")
    @classmethod
    def _one_is_a_list(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value

    @field_validator("source", "sha256")
    @classmethod
    def _is_not_empty(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value:
            raise ValueError("the list is empty")
        return value

    @model_validator(mode="after")
    def _files_belong_together(self) -> Self:
        if len(self.source) != len(self.sha256):
            raise ValueError(
                f"model_source and model_sha256 do not match ({len(self.source)} and {len(self.sha256)} entries):"
                " give one hash for each file, in the same order."
            )
        if problem := problem_of_names([file_name(source) for source in self.source]):
            raise ValueError(f"model_source {problem}")
        if len({self.folder_of(source) for source in self.source}) > 1:
            raise ValueError(
                "model_source has parts in several folders, and llama.cpp looks for all parts beside the first:"
                " put them into one folder, or give URLs only."
            )
        return self

    def folder_of(self, source: str) -> str:
        """The folder in which the file of a source ends up.

        A download's is named after its hash: another model of the same name goes beside the one that is served, which
        a switch may have to go back to.
        """
        return str(PurePosixPath(source).parent) if in_place(source) else f"{self.folder}/{self.sha256[0][:DIGITS]}"
