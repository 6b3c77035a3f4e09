"""How every role declares its settings, and how the inventory's data becomes one object per host, or a list of problems."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.fields import FieldInfo


class RoleSettings(BaseModel):
    """The settings of one role, frozen; each field is one key of the inventory.

    The inventory key is ``prefix`` + field name. Every field has a description that says what would be right (with its
    unit), because that sentence is what a user reads when the value is wrong, and what the README's table shows.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    prefix: ClassVar[str] = ""
    groups: ClassVar[frozenset[str]] = frozenset()
    """Groups whose hosts these settings are read for; empty: every host."""

    @classmethod
    def inventory_keys(cls) -> dict[str, FieldInfo]:
        """Inventory key → field."""
        return {cls.prefix + name: field for name, field in cls.model_fields.items()}


S = TypeVar("S", bound=RoleSettings)

REASONS = {"string_pattern_mismatch": "it is not of that form", "list_type": "it is no list: put [ ] around it"}
"""What pydantic says in words that are not a user's: its type of error → ours."""


@dataclass(frozen=True)
class HostData:
    """What the inventory says of one host.

    :param name: its name in the inventory
    :param groups: the groups that it is in
    :param data: every key, group data included, the most special value winning
    """

    name: str
    groups: frozenset[str]
    data: Mapping[str, Any]


class HostSettings:
    """The settings of one host, one object per role: ``settings[Model]``."""

    def __init__(self, by_model: Mapping[type[RoleSettings], RoleSettings]) -> None:
        self._by_model = dict(by_model)

    def __contains__(self, model: type[RoleSettings]) -> bool:
        """Whether they were read for this host: see `RoleSettings.groups`."""
        return model in self._by_model

    def __getitem__(self, model: type[S]) -> S:
        found = self._by_model[model]
        assert isinstance(found, model)
        return found


def read_settings(
    models: Sequence[type[RoleSettings]], hosts: Iterable[HostData], foreign: frozenset[str] = frozenset()
) -> tuple[dict[str, HostSettings], list[str]]:
    """Check the whole inventory at once.

    :param models: the settings models of all roles in play
    :param hosts: what the inventory says
    :param foreign: keys that are not ours but allowed: pyinfra's own
    :return: settings by host name, and the problems, one sentence each; a host with a problem has no settings
    """
    known = {key for model in models for key in model.inventory_keys()}
    settings: dict[str, HostSettings] = {}
    problems: list[str] = []
    for host in hosts:
        found = _unknown_keys(host, known, foreign)
        by_model: dict[type[RoleSettings], RoleSettings] = {}
        for model in models:
            if model.groups and not model.groups & host.groups:
                continue
            values = {name: host.data[model.prefix + name] for name in model.model_fields if model.prefix + name in host.data}
            try:
                by_model[model] = model(**values)
            except ValidationError as error:
                found += _invalid_values(host, model, error)
        problems += found
        if not found:
            settings[host.name] = HostSettings(by_model)
    return settings, once(problems)


def _unknown_keys(host: HostData, known: set[str], foreign: frozenset[str]) -> list[str]:
    found = []
    for key in sorted(set(host.data) - known - foreign):
        private = key.startswith("_")
        candidates = {name for name in foreign if name.startswith("_")} if private else known | foreign
        close = get_close_matches(key, candidates, n=1, cutoff=0.8 if private else 0.6)
        if close:
            found.append(f"{host.name}: there is no setting {key!r}: did you mean {close[0]!r}?")
        elif not private:
            found.append(f"{host.name}: there is no setting {key!r}: take it out, or begin its name with '_' if it is yours.")
    return found


def _invalid_values(host: HostData, model: type[RoleSettings], error: ValidationError) -> list[str]:
    found = []
    for problem in error.errors(include_url=False):
        name = str(problem["loc"][0]) if problem["loc"] else ""
        if name not in model.model_fields:
            found.append(f"{host.name}: {problem['msg'].removeprefix('Value error, ')}")
            continue
        right = (model.model_fields[name].description or "").rstrip(".")
        if problem["type"] == "missing":
            found.append(f"{host.name}: the setting {model.prefix}{name} is missing: {right}.")
        else:
            why = REASONS.get(problem["type"], problem["msg"].removeprefix("Value error, ").rstrip("."))
            found.append(f"{host.name}: {model.prefix}{name} = {problem['input']!r} is not valid ({why}): {right}.")
    return found


def once(problems: list[str]) -> list[str]:
    """The same problem of several hosts (a key of group data) is said once."""
    hosts: dict[str, list[str]] = {}
    for problem in problems:
        host, _, text = problem.partition(": ")
        hosts.setdefault(text, []).append(host)
    return [f"{', '.join(dict.fromkeys(names))}: {text}" for text, names in hosts.items()]
