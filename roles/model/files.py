"""Which files make the model, where they come from, and where they are in the end. Pure."""

from __future__ import annotations

from roles.base.download import Download
from roles.model.settings import Settings, file_name, in_place

STAMPS = "/var/lib/gpuquilt/models"
"""Holds one stamp per file, under the file's own path."""


def files(settings: Settings) -> list[Download]:
    """The files of the model, in order: llama-server gets the path of the first, and finds the others beside it."""
    downloads = []
    for source, sha256 in zip(settings.source, settings.sha256, strict=True):
        path = source if in_place(source) else f"{settings.folder_of(source)}/{file_name(source)}"
        downloads.append(Download(source, sha256, path, f"{STAMPS}{path}.stamp", settings.prefix))
    return downloads
