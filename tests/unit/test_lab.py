"""The example inventory: right in all but the one value that its user has to put in."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from roles.base.documentation import settings_models
from roles.base.settings import HostData, RoleSettings, read_settings
from roles.cluster.look import foreign_keys
from tests.conftest import ROOT, pyinfra

LAB = "inventories/lab.py"
PLACEHOLDER = "PUT THE SHA-256 OF THE MODEL HERE"


@cache
def hosts() -> list[HostData]:
    """What pyinfra reads in it."""
    ended = pyinfra("--json", LAB, "debug-inventory")
    assert ended.status == 0, ended.text
    return [HostData(host["name"], frozenset(host["groups"]), host["data"]) for host in json.loads(ended.output)]


def models() -> list[type[RoleSettings]]:
    return [model for name, model in settings_models().items() if name != "sandbox"]


def test_the_model_is_all_that_is_missing() -> None:
    _, problems = read_settings(models(), hosts(), foreign_keys())
    assert len(problems) == 1
    assert problems[0].startswith(f"rpc-main: model_sha256 = '{PLACEHOLDER}' is not valid")


def test_with_the_model_it_is_right() -> None:
    edited = [HostData(host.name, host.groups, {**host.data, "model_sha256": "0" * 64}) for host in hosts()]
    settings, problems = read_settings(models(), edited, foreign_keys())
    assert problems == []
    assert set(settings) == {"virtbase", "gpu-1080ti", "laptop", "rpc-main"}


def test_it_is_refused_until_it_is_edited(tmp_path: Path) -> None:
    """The whole deploy, with hosts that pyinfra only pretends to reach."""
    text = (ROOT / LAB).read_text()
    for name in ("virtbase", "gpu-1080ti", "laptop", "rpc-main"):
        text = text.replace(f'"{name}"', f'"@fake/{name}"')
    inventory = tmp_path / "lab.py"
    inventory.write_text(text)
    ended = pyinfra(str(inventory), "deploys/cluster.py")
    assert ended.status != 0
    assert f"model_sha256 = '{PLACEHOLDER}' is not valid" in ended.text
    assert "nothing was changed" in ended.text
    assert "Traceback" not in ended.text
