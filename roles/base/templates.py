"""Everything that is rendered comes from the folder ``templates``, in one way. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

TEMPLATES = Path(__file__).resolve().parents[2] / "templates"


def render(template: str, filters: dict[str, Callable[[Any], str]] | None = None, **values: Any) -> str:
    """Fill in a template; in shell scripts the filter `quote` makes one word of a value.

    :param template: its path below `TEMPLATES`
    :param filters: further filters, by name
    :raises jinja2.UndefinedError: the template names a value that is not given
    """
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.filters |= {"quote": shlex.quote, **(filters or {})}
    return environment.get_template(template).render(**values)
