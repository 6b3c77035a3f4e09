"""Every script is one that a shell understands, on both kinds of computer."""

from __future__ import annotations

import subprocess
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
