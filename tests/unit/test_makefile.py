"""What make says and does before anything is installed or made."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from pathlib import Path

import pytest

from roles.sandbox.layout import lay_out
from roles.sandbox.settings import SandboxMachine, Settings
from tests.conftest import ROOT, Ended, run

MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = re.findall(r'echo "make (\S+)', MAKEFILE)


@pytest.fixture(autouse=True)
def _no_other_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    """The make that runs the tests passes on where its own sandbox is."""
    for variable in ("SANDBOX", "SANDBOX_STATE", "GPUQUILT_SANDBOX_STATE"):
        monkeypatch.delenv(variable, raising=False)


def make(folder: Path, *arguments: str, **programs: str) -> Ended:
    """Run make in a folder that has nothing but the Makefile and pyproject.toml, with programs that only pretend."""
    (folder / "Makefile").write_text(MAKEFILE)
    (folder / "pyproject.toml").touch()
    for name, script in programs.items():
        write_program(folder / "bin" / name, script)
    return run("make", *arguments, cwd=folder, PATH=f"{folder}/bin:{os.environ['PATH']}", MAKEFLAGS="")


def ready_environment(folder: Path, script: str) -> None:
    """A virtual environment that is up to date, with programs that only pretend; and who looks is root."""
    (folder / "Makefile").write_text(MAKEFILE)
    (folder / "pyproject.toml").touch()
    os.utime(folder / "pyproject.toml", (0, 0))
    for name in ("pyinfra", "python", "pytest"):
        write_program(folder / ".venv/bin" / name, script)
    (folder / ".venv/ready").touch()
    write_program(folder / "bin/id", "echo 0")


def write_program(path: Path, script: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_help_names_every_target() -> None:
    defined = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))
    assert set(TARGETS) == defined - {"help", "root", "python3-venv", "vm-tools"}


@pytest.mark.parametrize("target", TARGETS)
def test_every_target_can_be_made(target: str, tmp_path: Path) -> None:
    ended = make(tmp_path, "--dry-run", target)
    assert ended.status == 0, ended.text


UP_AND_DOWN = [("sandbox", "deploys/sandbox.py"), ("sandbox-down", "deploys/sandbox_down.py")]


@pytest.mark.parametrize(("target", "deploy"), UP_AND_DOWN)
def test_the_settings_of_the_sandbox_reach_its_deploys(target: str, deploy: str, tmp_path: Path) -> None:
    settings = "--data sandbox_subnet=198.18.80.0/24"
    commands = make(tmp_path, "--dry-run", target, f"SANDBOX={settings}").output
    assert f"{deploy} --data sandbox_state=/var/lib/gpuquilt-sandbox {settings}\n" in commands


@pytest.mark.parametrize(("target", "deploy"), UP_AND_DOWN)
def test_the_mixed_sandbox_is_made_and_removed_with_the_same_settings(target: str, deploy: str, tmp_path: Path) -> None:
    """Whatever folder the other one has."""
    suffix = target.removeprefix("sandbox")
    said = make(
        tmp_path, "--dry-run", f"sandbox-mixed{suffix}", "SANDBOX_STATE=/srv/sandbox", "SANDBOX=--data sandbox_purge=true"
    )
    (command,) = [line for line in said.output.splitlines() if deploy in line]
    words = shlex.split(command)
    settings = dict(word.split("=", 1) for word in words[words.index(deploy) :] if "=" in word)
    described = [SandboxMachine(**there) for there in json.loads(settings["sandbox_machines"])]
    made = lay_out(Settings(**settings | {"sandbox_machines": described}))
    assert [machine.name for machine in made.machines] == ["gqm-cpu", "gqm-vulkan", "gqm-docker", "gqm-head"]
    assert f'_folder = Path("{made.state}")' in (ROOT / "inventories/mixed.py").read_text()
    assert not made.subnet.overlaps(lay_out(Settings()).subnet)
    assert words[-2:] == ["--data", "sandbox_purge=true"]


@pytest.mark.parametrize("arguments", [["SANDBOX_STATE=/srv/sandbox"], []], ids=["argument", "environment"])
def test_deploys_and_inventory_mean_the_same_sandbox(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not arguments:
        monkeypatch.setenv("GPUQUILT_SANDBOX_STATE", "/srv/sandbox")
    # Programs that say what they were given stand for the environment's.
    ready_environment(tmp_path, 'echo "$(basename $0) $*; inventory: $GPUQUILT_SANDBOX_STATE"')
    path = f"{tmp_path}/bin:{os.environ['PATH']}"
    targets = ("sandbox", "sandbox-down")
    made = "".join(run("make", target, *arguments, cwd=tmp_path, PATH=path, MAKEFLAGS="").text for target in targets)
    said = [line for line in made.splitlines() if "; inventory: " in line]
    assert len(said) == 4
    assert all(line.endswith("; inventory: /srv/sandbox") for line in said), made
    assert [line.count("--data sandbox_state=/srv/sandbox") for line in said] == [1, 0, 0, 1]


def test_a_folder_among_the_other_settings_is_refused(tmp_path: Path) -> None:
    ended = make(tmp_path, "sandbox", "SANDBOX=--data sandbox_state=/srv/sandbox", id="echo 0")
    assert ended.status != 0
    assert "named by SANDBOX_STATE=/a/folder" in ended.errors


def bare_computer(folder: Path, user: int, target: str = "tools") -> Ended:
    """`make tools` or vm-tools where no program of Debian's further packages is there; apt-get only says what it was told."""
    (folder / "Makefile").write_text(MAKEFILE.replace(":/usr/sbin:/sbin", ""))
    programs = folder / "bin"
    write_program(programs / "id", f"echo {user}")
    write_program(programs / "apt-get", 'echo "apt-get $*"')
    (programs / "make").symlink_to(shutil.which("make") or "")
    return run("make", target, cwd=folder, PATH=str(programs), MAKEFLAGS="")


PACKAGES = "git curl zstd nftables iproute2 openssh-client systemd procps"


def test_what_the_tests_run_is_installed_first(tmp_path: Path) -> None:
    ended = bare_computer(tmp_path, user=0)
    assert ended.status == 0, ended.text
    update, install = ended.output.splitlines()[1:]
    assert update.startswith("apt-get update")
    assert install.startswith("apt-get install --yes")
    assert install.endswith(PACKAGES)


def test_what_a_real_kernel_needs_is_installed_for_its_tests_alone(tmp_path: Path) -> None:
    ended = bare_computer(tmp_path, user=0, target="vm-tools")
    assert ended.status == 0, ended.text
    assert ended.output.splitlines()[-1].endswith(f"{PACKAGES} qemu-system-x86 mmdebstrap e2fsprogs util-linux mount")


def test_who_cannot_install_it_is_told_what_is_missing(tmp_path: Path) -> None:
    ended = bare_computer(tmp_path, user=1000)
    assert ended.status != 0
    assert f"install the packages {PACKAGES}." in ended.errors
    assert "apt-get" not in ended.text


@pytest.mark.parametrize("target", ["test", "test-unit", "test-long"])
def test_all_tests_wait_for_the_programs_that_they_run(target: str, tmp_path: Path) -> None:
    commands = make(tmp_path, "--dry-run", target).output
    assert 0 < commands.index("ssh-keygen=openssh-client") < commands.index("/pytest ")


@pytest.mark.parametrize("target", ["sandbox", "sandbox-down", "sandbox-mixed", "sandbox-mixed-down", "test", "test-long"])
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
