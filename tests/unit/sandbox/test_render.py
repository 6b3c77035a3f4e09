"""Every script is one that a shell understands, on both kinds of computer."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from roles.sandbox.apt import Mirrors, guest_sources
from roles.sandbox.inputs import MIRROR, MODEL, SOURCES
from roles.sandbox.layout import BASE_INSIDE, COMPILER_CACHE_INSIDE, lay_out
from roles.sandbox.render import TEMPLATES, nspawn_command, render
from roles.sandbox.seen import HIERARCHIES, Running, look
from roles.sandbox.settings import Settings

LAYOUT = lay_out(Settings())
W1 = LAYOUT.machines[0]
OPTIONS = ['Acquire::http::Proxy "http://it\'s.example:3142";']
VALUES: dict[str, Any] = {
    "layout": LAYOUT,
    "machine": W1,
    "host": "@local",
    "python": "/a folder/python",
    "mirror": MIRROR,
    "model": MODEL,
    "sources": SOURCES,
    "suite": "trixie",
    "packages": ["systemd", "dbus"],
    "apt_options": OPTIONS,
    "nameservers": ["192.0.2.53"],
    "hierarchies": HIERARCHIES,
    "command": nspawn_command(LAYOUT, W1),
    "processes": [Running(100, W1.name, W1.root)],
    "groups": [f"/sys/fs/cgroup/unified/{W1.name}"],
    "cables": [W1.interface],
    "patience": 40,
    "compiler_cache": COMPILER_CACHE_INSIDE,
    "base": BASE_INSIDE,
    "image": "registry.lan:5000/debian@sha256:0123",
    "booted_with_systemd": False,
}
SCRIPTS = sorted(path.name for path in TEMPLATES.glob("*.sh.j2"))


def check(script: str) -> None:
    checked = subprocess.run(["sh", "-n"], input=script, capture_output=True, text=True)
    assert checked.returncode == 0, f"{checked.stderr}\n{script}"


@pytest.mark.parametrize("template", SCRIPTS)
@pytest.mark.parametrize("booted_with_systemd", [True, False])
def test_every_script_is_one_that_a_shell_understands(template: str, booted_with_systemd: bool) -> None:
    check(render(template, **VALUES | {"booted_with_systemd": booted_with_systemd}))


def test_so_is_the_question() -> None:
    check(look(LAYOUT))


def test_systemd_keeps_a_machine_where_it_is_pid_1() -> None:
    script = render("start.sh.j2", **VALUES | {"booted_with_systemd": True})
    assert "systemd-run --quiet --collect --unit=gq-w1 --property=Delegate=yes" in script
    assert "setsid" not in script


def test_a_machine_made_before_docker_had_a_folder_there_gets_one_when_it_starts() -> None:
    assert "mkdir -p /var/lib/gpuquilt-sandbox/machines/gq-w1/docker" in render("start.sh.j2", **VALUES).splitlines()


def test_machines_share_what_they_compile_and_none_can_change_the_base() -> None:
    words = nspawn_command(LAYOUT, W1).split()
    assert "--bind=/var/cache/gpuquilt-sandbox/ccache:/srv/ccache" in words
    assert "--bind-ro=/var/cache/gpuquilt-sandbox/base/trixie:/srv/base" in words
    assert "mkdir -p /var/cache/gpuquilt-sandbox/ccache" in render("start.sh.j2", **VALUES).splitlines()
    assert "remote_storage = file:/srv/ccache|update-mtime=true" in render("make.sh.j2", **VALUES | {"sources": ""}).splitlines()


def run_with_docker(folder: Path, script: str) -> subprocess.CompletedProcess[str]:
    """Run a script where Docker only keeps what it is given, in ``image.tar``."""
    docker = folder / "docker"
    docker.write_text(f"#!/bin/sh\ncat >{folder}/image.tar\n")
    docker.chmod(0o755)
    environment = os.environ | {"PATH": f"{folder}:{os.environ['PATH']}"}
    return subprocess.run(["sh", "-c", script], env=environment, capture_output=True, text=True, check=False)


def script_of_image(folder: Path) -> str:
    """The script itself, with a base and a machine of a few files."""
    base = folder / "base"
    for name in ("etc/debian_version", "etc/apt/sources.list", "etc/ssl/certs/ca-certificates.crt", "var/log/apt", "bin/sh"):
        (base / name).parent.mkdir(parents=True, exist_ok=True)
        (base / name).write_text("of the base")
    (base / "usr/local/share/ca-certificates").mkdir(parents=True)
    machine = folder / "machine"
    for name in ("sources.list", "sources.list.d/debian.sources", "apt.conf.d/90sandbox"):
        (machine / "etc/apt" / name).parent.mkdir(parents=True, exist_ok=True)
        (machine / "etc/apt" / name).write_text("of the machine")
    shutil.copytree(base / "etc/ssl", machine / "etc/ssl")
    (machine / "usr/local/share/ca-certificates").mkdir(parents=True)
    return render("image.sh.j2", **VALUES | {"base": str(base)}).replace("--directory=/ ", f"--directory={machine} ")


def test_an_image_has_no_path_twice(tmp_path: Path) -> None:
    script = script_of_image(tmp_path)
    images = []
    for _ in range(2):
        assert run_with_docker(tmp_path, script).returncode == 0
        images.append((tmp_path / "image.tar").read_bytes())
        os.utime(tmp_path / "base/bin/sh", (7, 7))
    assert images[0] == images[1], "the same files are another layer"
    with tarfile.open(tmp_path / "image.tar") as image:
        files = [member.name.removeprefix("./") for member in image if not member.isdir()]
        assert sorted(files) == sorted(
            [
                "bin/sh",
                "etc/debian_version",
                "etc/apt/sources.list",
                "etc/apt/sources.list.d/debian.sources",
                "etc/apt/apt.conf.d/90sandbox",
                "etc/ssl/certs/ca-certificates.crt",
            ]
        )
        sources = image.extractfile("etc/apt/sources.list")
        assert sources is not None and sources.read() == b"of the machine"


def test_of_a_machine_that_lacks_a_file_there_is_no_image(tmp_path: Path) -> None:
    """By its name it would be taken for a whole one ever after."""
    script = script_of_image(tmp_path)
    (tmp_path / "machine/etc/apt/apt.conf.d/90sandbox").unlink()
    assert run_with_docker(tmp_path, script).returncode != 0
    assert not (tmp_path / "image.tar").exists()


def test_a_machine_that_has_no_base_to_show_is_told(tmp_path: Path) -> None:
    done = run_with_docker(tmp_path, render("image.sh.j2", **VALUES | {"base": "/nowhere"}))
    assert done.returncode == 1
    assert "there is no /nowhere in this machine" in done.stderr
    assert not (tmp_path / "image.tar").exists()


def test_a_machine_knows_its_address_its_peers_and_where_packages_come_from() -> None:
    mirrors = Mirrors("http://deb.example/debian")
    script = render("make.sh.j2", **VALUES | {"sources": guest_sources(mirrors, "trixie")})
    lines = script.splitlines()
    for line in (
        "Address=198.18.77.11/24",
        "Gateway=198.18.77.1",
        "nameserver 192.0.2.53",
        "198.18.77.10 gq-head",
        "URIs: http://deb.example/debian",
        *OPTIONS,
    ):
        assert line in lines
