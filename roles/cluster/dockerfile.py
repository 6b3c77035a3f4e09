"""The Dockerfile of a profile: templates/dockerfiles, filled in. Pure: the same profile makes the same bytes.

It is for BuildKit as Docker 20.10 has it, so it holds no heredoc, and for base images that are Debian or Ubuntu or made of one.
"""

from __future__ import annotations

import re
from dataclasses import replace
from hashlib import sha256

from roles.base.machine import USER
from roles.base.templates import render
from roles.cluster.options import Profile
from roles.cluster.state import CURRENT, RELEASES
from roles.gpus.catalog import load

SOURCE = "https://github.com/ggml-org/llama.cpp"
USER_ID = 10001
"""Of the image's own user; a unit of ours runs its container as the host's."""
LABEL = "gpuquilt."
"""What the names of our own labels begin with."""
REVISION = "org.opencontainers.image.revision"
"""The label with the commit (https://github.com/opencontainers/image-spec/blob/main/annotations.md)."""

_GOES_ON = re.compile(r"(\b(then|else|do)|[|{]|&&)$")


def dockerfile(profile: Profile, commit: str, release: str) -> str:
    """The Dockerfile that builds a release from the source at a commit.

    :param commit: all 40 hexadecimal digits; empty, like `release`, for `recipe`
    """
    name = f"llama.cpp for {profile.backend}{profile.toolkit}"
    generations = _generations(profile)
    return render(
        f"dockerfiles/{profile.backend}.j2",
        {"joined": joined, "label": _quoted},
        profile=profile,
        title=f"{name} on {generations}" if generations else name,
        commit=commit,
        options=profile.options,
        targets=profile.targets,
        web_ui=profile.options.get("LLAMA_BUILD_UI") == "ON",
        jobs='"${JOBS-}"',
        user=USER,
        user_id=USER_ID,
        folder=f"{RELEASES}/{release}",
        current=CURRENT,
        labels=_labels(profile, commit, release),
    )


def with_recipe(profile: Profile) -> Profile:
    """The profile with the SHA-256 of its Dockerfile, so that a change of a template is another release, too."""
    text = dockerfile(replace(profile, recipe=""), "", "")
    return replace(profile, recipe=sha256(text.encode()).hexdigest())


def joined(script: str) -> str:
    """The lines of a shell script as one RUN takes them: each goes on in the next, without comments."""
    lines = [line for line in script.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    return "".join(f"    {_continued(line)}\n" for line in lines[:-1]) + f"    {lines[-1]}\n"


def _continued(line: str) -> str:
    if line.endswith("\\"):
        return line
    return f"{line} \\" if _GOES_ON.search(line) else f"{line}; \\"


def _quoted(value: str) -> str:
    """A value in a Dockerfile, where a dollar sign would name a variable."""
    return '"' + re.sub(r'([\\"$])', r"\\\1", value) + '"'


def _labels(profile: Profile, commit: str, release: str) -> dict[str, str]:
    labels = {
        "org.opencontainers.image.title": "llama.cpp",
        "org.opencontainers.image.source": SOURCE,
        "org.opencontainers.image.version": commit[:12],
        REVISION: commit,
        f"{LABEL}release": release,
        f"{LABEL}targets": " ".join(profile.targets),
        f"{LABEL}backend": profile.backend,
        f"{LABEL}toolkit": profile.toolkit,
        f"{LABEL}architectures": " ".join(profile.architectures),
        f"{LABEL}generation": _generations(profile),
        f"{LABEL}options": " ".join(f"{name}={value}" for name, value in sorted(profile.options.items())),
    }
    return {name: value for name, value in labels.items() if value or name in (REVISION, f"{LABEL}release")}


def _generations(profile: Profile) -> str:
    """The titles of the generations that its architectures belong to, in the order of the catalog."""
    found = [
        generation.title
        for generation in load().generations.values()
        if any(
            _code(architecture) in (chips.compute_capability, chips.gfx_target)
            for architecture in profile.architectures
            for chips in generation.members
        )
    ]
    return ", ".join(found)


def _code(architecture: str) -> str:
    """The compute capability or gfx target of an architecture, e.g. 6.1 of ``61-real``."""
    found = re.match(r"([0-9]+)([0-9])[af]?(-|$)", architecture)
    return f"{found[1]}.{found[2]}" if found else architecture
