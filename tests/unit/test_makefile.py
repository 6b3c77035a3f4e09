"""What make says and does before anything is installed or made."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.conftest import ROOT, Ended, run

MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = re.findall(r'echo "make (\S+)', MAKEFILE)


def make(folder: Path, *arguments: str, **programs: str) -> Ended:
    """Run make in a folder that has nothing but the Makefile and pyproject.toml, with programs that only pretend."""
    (folder / "Makefile").write_text(MAKEFILE)
    (folder / "pyproject.toml").touch()
    (folder / "bin").mkdir()
    for name, script in programs.items():
        program = folder / "bin" / name
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
    return run("make", *arguments, cwd=folder, PATH=f"{folder}/bin:{os.environ['PATH']}", MAKEFLAGS="")


def test_help_names_every_target() -> None:
    defined = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))
    assert set(TARGETS) == defined - {"help", "root", "python3-venv"}


@pytest.mark.parametrize("target", TARGETS)
def test_every_target_can_be_made(target: str, tmp_path: Path) -> None:
    ended = make(tmp_path, "--dry-run", target)
    assert ended.status == 0, ended.text


@pytest.mark.parametrize(("target", "deploy"), [("sandbox", "deploys/sandbox.py"), ("sandbox-down", "deploys/sandbox_down.py")])
def test_the_settings_of_the_sandbox_reach_its_deploys(target: str, deploy: str, tmp_path: Path) -> None:
    settings = "--data sandbox_subnet=198.18.80.0/24"
    assert f"{deploy} {settings}\n" in make(tmp_path, "--dry-run", target, f"SANDBOX={settings}").output


@pytest.mark.parametrize("target", ["sandbox", "sandbox-down", "test", "test-long"])
def test_without_root_one_sentence_is_all(target: str, tmp_path: Path) -> None:
    ended = make(tmp_path, target, id="echo 1000")
    assert ended.status != 0
    assert ended.output == ""
    assert ended.errors.startswith("root is needed:")
    assert not (tmp_path / ".venv").exists()


def test_an_old_python_is_said(tmp_path: Path) -> None:
    ended = make(tmp_path, "setup", "PYTHON=python3.9", **{"python3.9": "exit 1"})
    assert ended.status != 0
    assert "python3.9 is older than 3.11" in ended.errors


def test_a_missing_venv_module_is_said_to_who_cannot_install_it(tmp_path: Path) -> None:
    python = 'case "$2" in *version_info*) exit 0 ;; *) exit 1 ;; esac'
    ended = make(tmp_path, "setup", "PYTHON=half-a-python", **{"half-a-python": python, "id": "echo 1000"})
    assert ended.status != 0
    assert "install the package python3-venv" in ended.errors


def test_what_is_installed_is_not_installed_again(tmp_path: Path) -> None:
    (tmp_path / ".venv").mkdir()
    (tmp_path / "pyproject.toml").touch()
    os.utime(tmp_path / "pyproject.toml", (0, 0))
    (tmp_path / ".venv/ready").touch()
    ended = run("make", "-f", str(ROOT / "Makefile"), "setup", cwd=tmp_path, MAKEFLAGS="")
    assert ended.status == 0
    assert "Nothing to be done" in ended.output
