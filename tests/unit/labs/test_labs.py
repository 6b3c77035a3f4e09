"""The plan for each lab is the one in its file, all of it: made here, and by preflight on hosts that answer what was recorded."""

from __future__ import annotations

import json
from calendar import timegm
from pathlib import Path
from typing import Any

import pytest
import yaml

from roles.gpus.catalog import load
from roles.llama_cpp.recipe import problems_of_backend
from roles.nvidia.toolkit import refusal
from tests.conftest import pyinfra
from tests.unit.fakes import BOOTS, inventory
from tests.unit.labs import HERE, LABS, TODAY, data_of, plan, readable, recorded, wanted

MARKS = {"machine": "/proc/cpuinfo", "sysfs": "mem_info_vram_total", "lspci": "lspci -D", "drivers": "nvidia-smi"}
"""What was recorded → words that are in no other command."""


def in_file(lab: str) -> Any:
    return yaml.safe_load((HERE / lab / "plan.yaml").read_text())


@pytest.mark.parametrize("lab", LABS)
def test_the_plan_is_the_one_in_the_file(lab: str) -> None:
    assert wanted(lab) == in_file(lab)


@pytest.mark.parametrize("lab", LABS)
def test_preflight_makes_the_same_of_what_the_hosts_say(lab: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", str(timegm(TODAY.timetuple())))
    written = tmp_path / "plan.json"
    ended = pyinfra(str(fake_inventory(lab, tmp_path)), "deploys/preflight.py", "--data", f"plan_json={written}", timeout=60)
    assert "Traceback" not in ended.text
    seen = json.loads(written.read_text().replace("@fake/", ""))
    assert ended.status == (1 if seen["refusals"] else 0)
    # What cannot be built on a host itself is no matter of the plan.
    hosts = plan(lab).hosts.values()
    unbuilt = {line for there in hosts for line in (*problems_of_backend(there), refusal(there, None, load()))}
    seen["refusals"] = [line for line in seen["refusals"] if line.partition(": ")[2] not in unbuilt]
    assert readable(seen) == in_file(lab)


def fake_inventory(lab: str, folder: Path) -> Path:
    """The lab's inventory with hosts that answer what was recorded."""
    groups: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    for host in data_of(lab):
        answers = {mark: recorded(lab, host.name)[name] for name, mark in MARKS.items()} | BOOTS
        own = {key: value for key, value in host.data.items() if not key.startswith("ssh_")}
        if "runs_on" in own:
            own["runs_on"] = f"@fake/{own['runs_on']}"
        for group in sorted(host.groups):
            groups.setdefault(group, []).append((f"@fake/{host.name}", {"fake_responses": answers, **own}))
    return inventory(folder, **groups)
