"""BuildKit's own checks of every Dockerfile: Debian 13's has none, so Debian's next release lends its Docker to a machine."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.sandbox.conftest import Machine
from tests.sandbox.fresh import fresh
from tests.unit.dockerfiles import plans, text

pytestmark = pytest.mark.long

NEXT = r"""
set -eu
export DEBIAN_FRONTEND=noninteractive
cd /etc/apt/sources.list.d
awk -v RS= 'NR == 1' debian.sources | sed 's/^Suites:.*/Suites: forky/' >forky.sources
apt-get -qq update
apt-get -qq install --no-install-recommends -t forky docker.io docker-cli docker-buildx >/dev/null
"""


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    with fresh("gqb", "198.18.88.0/24", {"next": "trixie"}) as found:
        found.machines["next"].out(NEXT, timeout=600)
        yield found.machines["next"]


@pytest.mark.parametrize("name", sorted(plans()))
def test_buildkit_has_nothing_to_say(machine: Machine, name: str) -> None:
    dockerfile = text(plans()[name])
    for base in set(re.findall(r"^FROM (\S+)", dockerfile, re.MULTILINE)):
        # It wants to know what the image is made for, and no more.
        machine.out(f"docker image inspect {base} >/dev/null 2>&1 || tar -cT /dev/null | docker import - {base}")
    ended = machine.ssh(f"mkdir -p nothing && docker build --check --file - nothing <<'END'\n{dockerfile}\nEND")
    assert ended.status == 0, ended.text
    assert "no warnings found" in ended.text
