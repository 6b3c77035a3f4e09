"""Which repositories a host can fetch from."""

import pytest
from pydantic import ValidationError

from roles.llama_cpp.settings import Settings

GOOD = [
    "https://github.com/ggml-org/llama.cpp.git",
    "ssh://git@example.org:2222/llama.cpp.git",
    "git@example.org:mirrors/llama.cpp.git",
    "git://example.org/llama.cpp",
    "file:///srv/inputs/llama.cpp.git",
    "/srv/mirrors/llama.cpp.git",
]
BAD = ["", "llama.cpp", "./llama.cpp", "../llama.cpp:x", "--upload-pack=touch:/x", "https://example.org/a b", ":x"]


@pytest.mark.parametrize("repository", GOOD)
def test_any_git_url_will_do(repository: str) -> None:
    assert Settings(repository=repository).repository == repository


@pytest.mark.parametrize("repository", BAD)
def test_what_git_would_misread_is_refused(repository: str) -> None:
    with pytest.raises(ValidationError, match="neither a URL nor an absolute path"):
        Settings(repository=repository)


def test_jobs_are_not_negative() -> None:
    assert Settings().jobs == 0
    with pytest.raises(ValidationError):
        Settings(jobs=-1)
