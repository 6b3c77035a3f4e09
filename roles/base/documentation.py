"""Writes the generated parts of README.md: settings, from the roles' models, the catalog's GPUs, and the example inventory.

Run as ``python -m roles.base.documentation --write``; without ``--write`` it only says whether README.md is up to date.
"""

from __future__ import annotations

import re
import sys
import types
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from pkgutil import iter_modules
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

import roles
from roles.base.settings import RoleSettings
from roles.gpus.catalog import Catalog, Generation, load

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"

_PART = re.compile(r"(<!-- generated: (?P<name>\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
_TYPES = {IPv4Address: "str, an IPv4 address", IPv4Network: "str, an IPv4 network", types.NoneType: "None"}


def main(arguments: Sequence[str]) -> int:
    """:return: 0 when README.md is up to date, or was brought up to date"""
    text = README.read_text()
    wanted = with_parts(text, parts())
    if text == wanted:
        return 0
    if "--write" in arguments:
        README.write_text(wanted)
        return 0
    print("README.md is out of date: run make docs.", file=sys.stderr)
    return 1


def with_parts(text: str, generated: Mapping[str, str]) -> str:
    """Put the generated parts between their markers, ``<!-- generated: NAME -->`` and ``<!-- end -->``.

    :raises ValueError: the markers do not name each part once
    """
    named = sorted(found["name"] for found in _PART.finditer(text))
    if named != sorted(generated):
        raise ValueError(f"README.md has markers for {named}, and the generated parts are {sorted(generated)}.")
    return _PART.sub(lambda found: f"{found[1]}{generated[found['name']]}{found[3]}", text)


def parts() -> dict[str, str]:
    """Name of a part → its text."""
    inventory = (ROOT / "inventories/lab.py").read_text()
    tables = "\n".join(f"### `{name}`\n\n{table(model)}" for name, model in settings_models().items())
    return {
        "lab": f"```python\n{inventory}```\n",
        "settings": f"\n{tables}\n",
        "generations": f"\n{generations(load())}\n",
    }


def settings_models() -> dict[str, type[RoleSettings]]:
    """Role → its settings: what the whole cluster shares first, then by name; roles without settings are left out."""
    found: dict[str, type[RoleSettings]] = {}
    for module in iter_modules(roles.__path__):
        if (Path(roles.__path__[0]) / module.name / "settings.py").is_file():
            settings = getattr(import_module(f"roles.{module.name}.settings"), "Settings", None)
            if settings is not None:
                found[module.name] = settings
    return dict(sorted(found.items(), key=lambda item: (item[0] != "cluster", item[0])))


def table(model: type[RoleSettings]) -> str:
    """The settings of one role as a table in Markdown, below what the model says of itself."""
    rows = [
        (f"`{key}`", type_name(field.annotation), default(field), field.description or "")
        for key, field in model.inventory_keys().items()
    ]
    about = " ".join((model.__doc__ or "").split("\n\n")[0].split())
    return f"{about}\n\n{markdown(('key', 'type', 'default', 'meaning'), rows)}"


def generations(catalog: Catalog) -> str:
    """The generations of GPUs in the catalog as a table in Markdown."""
    heads = ("generation", "vendor", "chips", "compute capability or gfx target", "driver branches", "open module")
    rows = [
        (
            generation.title,
            generation.vendor,
            "<br>".join(", ".join(member.chips) or "by id" for member in generation.members),
            "<br>".join(member.compute_capability or member.gfx_target or "-" for member in generation.members),
            branches(generation),
            generation.open_module or "-",
        )
        for generation in catalog.generations.values()
    ]
    return markdown(heads, rows)


def branches(generation: Generation) -> str:
    """Which branches of NVIDIA's driver drive a generation."""
    if generation.vendor != "nvidia":
        return "-"
    first, last = generation.first_branch, generation.last_branch
    return f"{first} and newer" if first else f"up to {last}" if last else "all"


def markdown(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def type_name(annotation: Any) -> str:
    """What a user writes in the inventory for a value of this type; that it may be left out is said by the default."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return type_name(arguments[0])
    if origin in (Union, types.UnionType):
        return " or ".join(type_name(argument) for argument in arguments if argument is not types.NoneType)
    if origin is Literal:
        return " or ".join(f"`{argument!r}`" for argument in arguments)
    if origin in (list, tuple):
        return f"list of {type_name(arguments[0])}"
    if origin is dict:
        return f"dict of {type_name(arguments[0])} to {type_name(arguments[1])}"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "dict"
    return _TYPES.get(annotation, getattr(annotation, "__name__", str(annotation)))


def default(field: FieldInfo) -> str:
    """The default as it would stand in an inventory; ``none`` where its absence means something, see the description."""
    if field.is_required():
        return "**required**"
    value = _plain(field.get_default(call_default_factory=True))
    return "none" if value is None else f"`{value!r}`"


def _plain(value: Any) -> Any:
    """The value in the words of an inventory."""
    if isinstance(value, IPv4Address | IPv4Network):
        return str(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, BaseModel):
        return {name: _plain(item) for name, item in value if name in value.model_fields_set}
    return value


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
