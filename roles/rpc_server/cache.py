"""What bounds the cache of tensors: a rule of systemd-tmpfiles, which systemd applies once a day. Pure."""

from __future__ import annotations

from roles.base.units import render
from roles.rpc_server.settings import Settings

FOLDER = "/var/cache/llama.cpp/rpc"
"""Where the RPC server keeps tensors, below LLAMA_CACHE."""

RULE = "/etc/tmpfiles.d/gpuquilt.conf"


def rule(settings: Settings) -> str:
    """The text of the rule."""
    return render("systemd/tmpfiles-gpuquilt.conf.j2", folder=FOLDER, days=settings.cache_days)
