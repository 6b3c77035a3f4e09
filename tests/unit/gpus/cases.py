"""The lspci texts under tests/cases/lspci, and what is expected of them; more.yaml has what this project added."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parents[2] / "cases/lspci"
EXPECTED: dict[str, dict[str, Any]] = {
    name: case for file in ("expected.yaml", "more.yaml") for name, case in yaml.safe_load((FOLDER / file).read_text()).items()
}


def text(name: str) -> str:
    """The text of a case, its line ends as they are."""
    return (FOLDER / f"{name}.txt").read_bytes().decode()
