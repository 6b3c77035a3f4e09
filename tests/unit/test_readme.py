"""README.md says what is so: its generated parts are those of the code, and a test runs every command that it names."""

from __future__ import annotations

import re

import pytest

from roles.base import documentation
from roles.base.documentation import README, parts, with_parts
from roles.gpus.link import Verdict
from tests.conftest import ROOT

CLUSTER = "tests/sandbox/test_cluster.py"
MIXED = "tests/sandbox/test_mixed.py"
PREFLIGHT = "tests/sandbox/test_preflight.py"
RUN_BY = {
    "make sandbox": f"{CLUSTER}::test_make_sandbox_ends_with_an_answer_through_both_workers",
    # What `make sandbox` does first.
    "make setup": f"{CLUSTER}::test_make_sandbox_ends_with_an_answer_through_both_workers",
    "make sandbox SANDBOX='--data sandbox_subnet=198.18.80.0/24'": (
        "tests/unit/test_makefile.py::test_the_settings_of_the_sandbox_reach_its_deploys"
    ),
    "make sandbox SANDBOX_STATE=/srv/sandbox": ("tests/unit/test_makefile.py::test_deploys_and_inventory_mean_the_same_sandbox"),
    "make sandbox-mixed": f"{MIXED}::test_one_answer_comes_through_three_kinds_of_workers",
    "make sandbox-mixed-down": ("tests/unit/test_makefile.py::test_the_mixed_sandbox_is_made_and_removed_with_the_same_settings"),
    "make sandbox-down sandbox-mixed-down": (
        "tests/unit/test_makefile.py::test_the_mixed_sandbox_is_made_and_removed_with_the_same_settings"
    ),
    "make sandbox-down": "tests/sandbox/test_sandbox_role.py::test_removing_it_leaves_nothing_and_touches_nothing_else",
    "pyinfra -y @local deploys/sandbox_down.py --data sandbox_purge=true": (
        "tests/sandbox/test_sandbox_role.py::test_purging_removes_the_cache_but_not_one_that_another_sandbox_stands_on"
    ),
    "pyinfra inventories/lab.py deploys/cluster.py": "tests/unit/test_lab.py::test_it_is_refused_until_it_is_edited",
    "pyinfra inventories/mine.py deploys/preflight.py": f"{PREFLIGHT}::test_a_cluster_that_is_what_it_should_be",
    "pyinfra inventories/mine.py deploys/preflight.py --data plan_json=plan.json": (
        f"{PREFLIGHT}::test_an_upgrade_is_announced_and_not_made"
    ),
    "lspci -nnvv | python -m roles.gpus -": "tests/unit/gpus/test_main.py::test_standard_input",
    "pyinfra inventories/mine.py deploys/cluster.py": (
        f"{CLUSTER}::test_the_terminal_shows_what_would_change_and_changes_it_after_enter"
    ),
    "pyinfra inventories/mine.py deploys/cluster.py --data commit=e3a74b299085cd00013804f7fca2e03441b2da20": (
        f"{CLUSTER}::test_an_upgrade_lets_the_old_release_serve_meanwhile"
    ),
    "pyinfra inventories/mine.py deploys/rollback.py": f"{CLUSTER}::test_rollback_goes_to_the_release_before_and_back",
    "pyinfra inventories/mine.py deploys/prepare.py": "tests/sandbox/test_drivers.py",
    "pyinfra inventories/mine.py deploys/hypervisors.py": "tests/vm/test_passthrough.py",
    "pyinfra inventories/mine.py deploys/remove.py --data remove=llama_cpp": (
        "tests/sandbox/test_readme.py::test_removing_leaves_nothing"
    ),
    "pyinfra inventories/mine.py deploys/remove.py --data remove=docker,nvidia --limit gpu-1080ti": (
        "tests/unit/removal/test_removal.py::test_what_is_not_named_stays"
    ),
    "pytest tests/verify --inventory inventories/mine.py": "tests/sandbox/test_verify.py",
    "make test": "tests/unit/test_makefile.py::test_every_target_can_be_made",
    "make test-unit": "tests/unit/test_makefile.py::test_every_target_can_be_made",
    "make test-long": "tests/unit/test_makefile.py::test_every_target_can_be_made",
    "make test-cuda": "tests/unit/test_makefile.py::test_every_target_can_be_made",
    "curl http://192.168.1.20:8080/v1/completions -H 'Content-Type: application/json'"
    ' -d \'{"prompt": "The capital city of France is called", "max_tokens": 8, "temperature": 0}\'': (
        "tests/sandbox/test_readme.py::test_the_endpoint_is_asked_with_curl"
    ),
}
"""Command → the test that runs it; on the sandbox's inventory where the README has a user's own."""
NO_TEST_NEEDED = {". .venv/bin/activate", "cp inventories/lab.py inventories/mine.py"}


def commands(text: str) -> list[str]:
    """The lines of all blocks of shell commands, and what is run through gpuquilt's own programs within sentences."""
    blocks = [line for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]
    return blocks + re.findall(r"`((?:make|pyinfra|pytest) [^`]+)`", text)


@pytest.mark.parametrize("command", sorted(set(commands(README.read_text())) - NO_TEST_NEEDED))
def test_a_test_runs_the_command(command: str) -> None:
    path, _, name = RUN_BY[command].partition("::")
    assert (ROOT / path).is_file(), f"{path} runs this command, and is not there"
    assert not name or f"def {name}(" in (ROOT / path).read_text()


def test_no_command_is_left_over_in_the_register() -> None:
    assert set(RUN_BY) <= {*commands(README.read_text()), "pyinfra inventories/lab.py deploys/cluster.py"}


def test_the_generated_parts_are_up_to_date() -> None:
    assert with_parts(README.read_text(), parts()) == README.read_text(), "run make docs"


def test_every_setting_of_every_role_is_in_a_table() -> None:
    text = README.read_text()
    roles = [path.parent.name for path in ROOT.glob("roles/*/settings.py") if path.parent.name != "base"]
    assert sorted(documentation.settings_models()) == sorted(roles)
    for model in documentation.settings_models().values():
        assert [key for key in model.inventory_keys() if f"| `{key}` |" not in text] == []
        assert [key for key, field in model.inventory_keys().items() if not field.description] == []


def test_the_files_that_it_names_are_there() -> None:
    named = re.findall(r"`((?:deploys|inventories|roles|tests|templates)/[\w./]*)`", README.read_text())
    assert [path for path in named if path != "inventories/mine.py" and not (ROOT / path).exists()] == []


def test_the_table_of_preflight_is_one_that_it_prints() -> None:
    (shown,) = re.findall(r"```text\n(.*?)```", README.read_text(), re.DOTALL)
    assert shown in (ROOT / "tests/unit/preflight/golden/reference-lab.txt").read_text()


def test_every_verdict_on_a_link_is_explained() -> None:
    explained = re.findall(r"^\| `(\w+)` \| .+ \| .+ \|$", README.read_text(), re.MULTILINE)
    assert explained[: len(Verdict)] == list(Verdict)


def test_markers_that_name_no_part_are_refused() -> None:
    with pytest.raises(ValueError, match="has markers for"):
        with_parts("<!-- generated: nothing -->\n<!-- end -->\n", {"something": ""})


def test_a_changed_part_is_written_and_the_rest_stays() -> None:
    text = "before\n<!-- generated: part -->\nold\n<!-- end -->\nafter\n"
    assert with_parts(text, {"part": "new\n"}) == text.replace("old", "new")


def test_the_sentences_that_it_explains_are_those_of_the_code() -> None:
    code = "".join(path.read_text() for path in ROOT.glob("roles/**/*.py"))
    sentences = re.findall(r"^\| \*(.+?)\* \|", README.read_text(), re.MULTILINE)
    pieces = [piece.strip(" :") for sentence in sentences for piece in sentence.split("…")]
    assert len(sentences) > 10
    assert [piece for piece in pieces if piece.strip("?. ") and piece not in code] == []
