"""Preflight as a user types it, on fake hosts with recorded outputs: what it prints and writes, and that it only looks."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from roles.base.download import look as look_at_downloads
from roles.base.facts import MissingPackagesFact
from roles.cluster import seen
from roles.llama_cpp.facts import ReleasesFact, RoomFact
from roles.nvidia import setup
from tests.conftest import ROOT, pyinfra_command, run
from tests.unit.cluster.examples import good_plan
from tests.unit.fakes import CLUSTER, GOOD, LOOKING, MODEL, Run, deploy, fake, inventory
from tests.unit.gpus.cases import text
from tests.unit.test_deploys import typed

PREFLIGHT = ROOT / "deploys" / "preflight.py"
GOLDEN = Path(__file__).parent / "preflight" / "golden"

LOOKS = [
    *LOOKING,
    seen.COMMAND,
    ReleasesFact().command(),
    RoomFact().command(replace(good_plan().hosts["w1"], release="RELEASE")),
    look_at_downloads([], "llama"),
    setup.COMMAND,
    MissingPackagesFact().command(["cuda-toolkit-13-3"]),
    MissingPackagesFact().command(["nvidia-cuda-toolkit", "g++-13"]),
]
IN_AUTUMN = "1790000000"
"""21 September 2026, as SOURCE_DATE_EPOCH has it."""

LAPTOP: dict[str, Any] = {
    "lspci -D": text("4080-mobile-x8").splitlines(),
    "mokutil": [
        "kernel 6.14.0-37-generic",
        "running NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  610.43.02  Release Build",
        "version 610.43.02",
        "license Dual MIT/GPL",
        "smi 00000000:01:00.0, 12282, 1503, P8, 2, 1, 4, 8, 16, Enabled, 8.9",
    ],
}
"""What a laptop with an RTX 4080 Mobile answers."""


@pytest.fixture(autouse=True)
def _on_a_known_day(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", IN_AUTUMN)


def lab(folder: Path, **data: Any) -> Path:
    """A hypervisor whose card belongs to a virtual machine, that machine, a laptop, and a head.

    :param data: what holds for all hosts
    """
    everywhere = GOOD | data
    virtbase = {"lspci -D": text("1080ti-x4-slot-unknown").splitlines()}
    return inventory(
        folder,
        hypervisors=[fake("virt", answers=virtbase, **everywhere)],
        workers=[fake("w1", **everywhere, gpus=["GP102"]), fake("w2", answers=LAPTOP, **everywhere)],
        heads=[fake("head", **MODEL | everywhere)],
    )


def preflight(path: Path, *options: str, script: Path = PREFLIGHT) -> Run:
    """Run it as a script would: no terminal, and no `-y`."""
    return deploy(path, *options, script=script, yes=())


def assert_looked(run: Run) -> None:
    """No host was told anything but what shows what it is and has."""
    told = [re.sub(r"/releases/[^/*]+/", "/releases/RELEASE/", command.strip()) for _, command in run.commands]
    assert [command for command in told if not any(known.strip().startswith(command) for known in LOOKS)] == []


def printed(run: Run) -> str:
    """Its tables; the spaces at the ends of lines are left out."""
    return "".join(f"{line.rstrip()}\n" for line in run.ended.output.splitlines())


def refused(run: Run) -> list[str]:
    """The sentences of a run with lines so long that none is broken."""
    return re.findall(r"^  refused  (.*?) *$", run.ended.output, re.MULTILINE)


def test_what_it_prints_of_a_lab_that_computes_with_processors(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    run = preflight(lab(tmp_path, backend="cpu"), "--data", f"plan_json={file}")
    assert run.ended.status == 0, run.ended.text
    assert printed(run) == (GOLDEN / "fake-lab.txt").read_text()
    assert_looked(run)
    plan = json.loads(file.read_text())
    assert sorted(plan["hosts"]) == ["@fake/head", "@fake/w1", "@fake/w2"]
    assert plan["machines"]["@fake/virt"]["left_out"][0]["gpu"]["link"]["verdict"] == "narrow"


def test_a_lab_that_computes_with_its_gpus(tmp_path: Path) -> None:
    run = preflight(lab(tmp_path))
    assert run.ended.status == 0, run.ended.text
    tables = printed(run)
    assert "  build    cuda 13.3 for 89-real\n" in tables
    assert "  to do    install NVIDIA driver 550.163.01" in tables
    assert "  to do    install for CUDA 12.4: nvidia-cuda-toolkit, g++-13\n" in tables
    assert "  to do    install for CUDA 13.3: cuda-toolkit-13-3\n" in tables
    assert_looked(run)


def test_what_the_host_itself_cannot_build_is_refused_after_the_tables(tmp_path: Path) -> None:
    run = preflight(lab(tmp_path, cuda_toolkit="12.2"))
    assert run.ended.status == 1
    tables, _, cluster = printed(run).partition("\ncluster\n")
    assert "  build    cuda 12.2 for 89-real\n" in tables
    assert "  refused  @fake/w1, @fake/w2: its release needs CUDA 12.2" in cluster
    assert_looked(run)


@pytest.mark.parametrize(
    "data",
    [
        {"model_sha256": "not yet", "rpc_prot": 1},
        {"backend": "vulkan", "endpoints": ["@fake/w9:1"]},
        {"cuda_toolkit": "11.0"},
    ],
)
def test_it_refuses_what_cluster_py_refuses_in_the_same_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: dict[str, Any]
) -> None:
    monkeypatch.setenv("COLUMNS", "2000")
    run, real = preflight(lab(tmp_path, **data)), preflight(lab(tmp_path, **data), script=CLUSTER)
    assert (run.ended.status, real.ended.status) == (1, 1)
    sentences = real.ended.text.partition("nothing was changed, because:\n")[2]
    assert refused(run) == [line.strip() for line in sentences.splitlines() if line.startswith("    ")]
    assert_looked(run)


def test_ways_to_start_it_that_cluster_py_refuses_ask_no_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "2000")
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "yesterday")
    run = preflight(lab(tmp_path), "--limit", "heads")
    assert run.ended.status == 1
    assert [sentence.partition(" ")[2].partition(":")[0] for sentence in refused(run)] == [
        "--limit and --exclude would switch a part of the cluster, and llama.cpp needs the same commit everywhere",
        "SOURCE_DATE_EPOCH = 'yesterday' is no number of seconds since 1970",
    ]
    assert run.commands == []


@pytest.mark.parametrize("data", [{"cuda_toolkit": "12.2"}, {"rpc_prot": 1}])
def test_the_plan_is_written_whatever_is_refused(tmp_path: Path, data: dict[str, Any]) -> None:
    file = tmp_path / "plan.json"
    assert preflight(lab(tmp_path, **data), "--data", f"plan_json={file}").ended.status == 1
    plan = json.loads(file.read_text())
    assert sorted(plan) == ["commit", "hosts", "machines", "refusals", "warnings"]
    assert plan["refusals"]


def test_a_setting_that_is_wrong_hides_neither_the_other_hosts_nor_what_is_wrong_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So it is on the first day, when the model's hash is still to be put in."""
    monkeypatch.setenv("COLUMNS", "2000")
    unknown = MODEL | {"model_sha256": "PUT IT HERE"}
    run = preflight(
        inventory(
            tmp_path,
            workers=[fake("w1", **GOOD, backend="sycl"), fake("w2", answers=LAPTOP, **GOOD)],
            heads=[fake("head", **GOOD, **unknown)],
        )
    )
    assert run.ended.status == 1
    assert "  build    cuda 13.3 for 89-real" in printed(run)
    assert [sentence.partition(" = ")[0] for sentence in refused(run)] == ["@fake/head: model_sha256", "@fake/w1: backend"]


def test_a_plan_that_cannot_be_written_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "2000")
    run = preflight(lab(tmp_path, backend="cpu"), "--data", f"plan_json={tmp_path}/missing/plan.json")
    assert run.ended.status == 1
    (sentence,) = refused(run)
    assert "/missing/plan.json' cannot be written (No such file or directory): name a file" in sentence
    assert "Traceback" not in run.ended.text


def test_a_setting_of_preflight_that_is_misspelled_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "2000")
    run = preflight(lab(tmp_path), "--data", "plan_jsn=plan.json")
    assert refused(run)[0].endswith("there is no setting 'plan_jsn': did you mean 'plan_json'?")


def test_the_plan_is_that_of_the_day_that_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Branch 610 of NVIDIA's driver ended on 31 August 2026."""
    path = lab(tmp_path)
    assert "branch 610 is past its end of life" in " ".join(preflight(path).ended.output.split())
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1780000000")
    assert "end of life" not in preflight(path).ended.output


def test_a_host_that_is_down_is_said_as_by_cluster_py(tmp_path: Path) -> None:
    down = ("127.0.0.1", {"ssh_port": 1, **GOOD})
    run = preflight(inventory(tmp_path, workers=[down, fake("w2", **GOOD)], heads=[fake("head", **GOOD, **MODEL)]))
    assert run.ended.status == 1
    assert "127.0.0.1: cannot be reached (why stands above): start it, or take it out of the inventory" in run.ended.text
    assert "Traceback" not in run.ended.text
    assert run.commands == []


def test_a_host_whose_sudo_does_not_work_is_shown_all_the_same(tmp_path: Path) -> None:
    person = {"user": "1000", "sudo": "sudo: a password is required"}
    worker = fake("w2", person, LAPTOP, **GOOD, _sudo=True)
    run = preflight(inventory(tmp_path, workers=[worker], heads=[fake("head", **GOOD, **MODEL)]))
    assert run.ended.status == 1
    said = " ".join(run.ended.output.split())
    assert "AD104M [GeForce RTX 4080 Max-Q / Mobile]" in said
    assert "sudo does not work without a password (sudo: a password is required)" in said


def test_in_a_terminal_nothing_is_asked(tmp_path: Path) -> None:
    status, said = typed(str(lab(tmp_path, backend="cpu")), str(PREFLIGHT))
    assert status == 0
    assert "Press enter" not in said
    assert "NVIDIA Corporation GP102 [GeForce GTX 1080 Ti]" in said


def test_a_reader_that_goes_away_is_no_fault(tmp_path: Path) -> None:
    command = " ".join(pyinfra_command(str(lab(tmp_path, backend="cpu")), str(PREFLIGHT)))
    ended = run("sh", "-c", f"{command} | head -n 1")
    assert ended.output == "@fake/virt: hypervisor, Debian\n"
    assert "Traceback" not in ended.errors
    assert "rror" not in ended.errors
