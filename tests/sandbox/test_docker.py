"""Docker on a machine whose owner has been there before: installed, restarted under running containers, and taken back.

Docker's own repository is played by one on the machine itself, whose packages are Debian's under Docker's names.
"""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from roles.docker import seen
from roles.docker.decisions import exposed
from tests.conftest import Ended, pyinfra
from tests.sandbox.conftest import Machine, changes
from tests.sandbox.fresh import Fresh, fresh

BASE = Path("/var/cache/gpuquilt-sandbox/base/trixie")
"""What debootstrap has made for the machines."""

REPOSITORY = r"""
set -eu
export DEBIAN_FRONTEND=noninteractive GNUPGHOME=/srv/gnupg
apt-get -qq update
apt-get -qq install --no-install-recommends gpg gpg-agent >/dev/null 2>&1
mkdir -p /srv/docker/dists/trixie/stable/binary-amd64 /srv/deb /etc/apt/keyrings
mkdir -m 700 $GNUPGHOME
gpg --batch --quiet --passphrase '' --quick-generate-key 'Docker Release' ed25519 sign never
gpg --armor --export >/srv/docker/gpg
gpg --list-keys --with-colons | sed -n 's/^fpr:*\([0-9A-F]*\):$/\1/p' >/srv/fingerprint
cp /srv/docker/gpg /etc/apt/keyrings/docker.asc
cd /srv/deb
chown _apt .
apt-get -qq download docker.io docker-cli docker-buildx containerd
as() { # PACKAGE OF-DEBIAN DEPENDS
    dpkg-deb --raw-extract $2_*.deb tree
    cat >tree/DEBIAN/control <<END
Package: $1
Version: 5:26.1.5-1~debian.13~trixie
Architecture: amd64
Maintainer: nobody <nobody@example.com>
Depends: $3
Description: Debian's $2, as Docker calls it
END
    dpkg-deb -Znone --root-owner-group --build tree /srv/docker/$1.deb >/dev/null
    rm -r tree
    { dpkg-deb --field /srv/docker/$1.deb
      echo "Filename: $1.deb"
      echo "Size: $(stat -c %s /srv/docker/$1.deb)"
      echo "SHA256: $(sha256sum </srv/docker/$1.deb | cut -c -64)"
      echo; } >>/srv/docker/dists/trixie/stable/binary-amd64/Packages
}
as docker-ce docker.io 'containerd.io, docker-ce-cli, iptables'
as docker-ce-cli docker-cli libc6
as containerd.io containerd 'runc, libc6'
as docker-buildx-plugin docker-buildx libc6
cd /srv/docker/dists/trixie
packages=stable/binary-amd64/Packages
cat >Release <<END
Origin: Docker
Suite: trixie
Codename: trixie
Components: stable
Architectures: amd64
Date: $(LC_ALL=C date -u '+%a, %d %b %Y %H:%M:%S UTC')
SHA256:
 $(sha256sum <$packages | cut -c -64) $(stat -c %s $packages) $packages
END
gpg --batch --quiet --clearsign --output InRelease Release
"""

SOURCE = "deb [arch=amd64 signed-by=/etc/apt/keyrings/docker.asc] file:///srv/docker trixie stable"
DAEMON = '{ "debug":true,\n      "registry-mirrors": ["https://mirror.example"],   "log-opts": {"labels": "mine"} }\n'
OWNERS = {"debug": True, "registry-mirrors": ["https://mirror.example"], "log-opts": {"labels": "mine"}}
"""What the machine's owner has left there, long ago: a source, and options of the daemon."""

LOOP = "sh -c 'while :; do sleep 1; done'"
SPECIFICATION = """
cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
- name: "0"
  containerEdits: {deviceNodes: [{path: /dev/nvidia0, hostPath: /dev/like-nvidia}]}
containerEdits:
  hooks: [{hookName: createContainer, path: /usr/local/bin/update-ldcache}]
"""
HOOK = r"""#!/bin/sh
bundle=$(sed -n 's/.*"bundle":"\([^"]*\)".*/\1/p')
root=$(sed -n 's/.*"root":{"path":"\([^"]*\)".*/\1/p' "$bundle/config.json")
mkdir -p "$root/opt/driver" && cp -L "$root"/usr/lib/*/libz.so.1 "$root/opt/driver" &&
echo /opt/driver >"$root/etc/ld.so.conf.d/00-driver.conf" && ldconfig -r "$root"
"""
"""As NVIDIA's hooks do: it puts a library into the container, and into the cache of its linker."""


@pytest.fixture(scope="module")
def there() -> Iterator[Fresh]:
    with fresh("gqk", "198.18.81.0/24", {"dock": "trixie"}) as found:
        machine = found.machines["dock"]
        machine.out(REPOSITORY, timeout=600)
        machine.out(f"echo '{SOURCE}' >/etc/apt/sources.list.d/docker.list; mkdir /etc/docker")
        machine.out(f"echo '{DAEMON}' >/etc/docker/daemon.json")
        yield found


@pytest.fixture
def machine(there: Fresh) -> Machine:
    return there.machines["dock"]


def deploy(there: Fresh, folder: Path, name: str = "deploys/prepare.py", **settings: Any) -> Ended:
    """Run a deploy with Docker from its own repository."""
    fingerprint = there.machines["dock"].out("cat /srv/fingerprint")
    wanted = {
        "docker_engine": "docker",
        "docker_repository": "file:///srv/docker",
        "docker_repository_fingerprint": fingerprint,
        **settings,
    }
    ended = pyinfra("--json", "-y", there.inventory(folder, {"dock": wanted}), name, timeout=300)
    assert ended.status == 0, ended.text
    return ended


def container(machine: Machine, name: str) -> list[str]:
    """What is the same as long as a container goes on."""
    return machine.out(f"docker inspect --format '{{{{.State.Pid}}}} {{{{.State.StartedAt}}}}' {name}").split()


def reloads(machine: Machine) -> str:
    """How often systemd has read its units anew."""
    return machine.out("journalctl -b _PID=1 --output=cat | grep -ci 'reload.*request' || true")


def test_it_is_installed_beside_what_the_owner_has_done(there: Fresh, machine: Machine, tmp_path: Path) -> None:
    deploy(there, tmp_path)
    # One source, and it is the one with our key.
    assert machine.out("grep -rl /srv/docker /etc/apt/sources.list /etc/apt/sources.list.d") == (
        "/etc/apt/sources.list.d/gpuquilt-docker.sources"
    )
    machine.out("apt-get update --error-on=any")
    ours = {"max-size": "10m", "max-file": "3"}
    options = json.loads(machine.out("cat /etc/docker/daemon.json"))
    assert options == {**OWNERS, "log-opts": {"labels": "mine", **ours}, "live-restore": True}
    assert machine.out("docker info --format '{{.LiveRestoreEnabled}} {{.Debug}} {{.Driver}}'") == "true true overlay2"
    assert "docker-ce" in machine.out("cat /var/lib/gpuquilt/packages/docker").split()


def test_a_container_from_a_debootstrap_base_goes_on_while_docker_is_restarted(
    there: Fresh, machine: Machine, tmp_path: Path
) -> None:
    send = f"tar -C {BASE} -c ./bin ./etc ./lib ./lib64 ./sbin ./usr"
    ssh = f"ssh -o BatchMode=yes -o UserKnownHostsFile={machine.known_hosts} -i {machine.key} root@{machine.address}"
    subprocess.run(f"{send} | {ssh} docker import - gpuquilt/base:1", shell=True, check=True, timeout=120)
    machine.out("mkdir -p build && printf 'FROM gpuquilt/base:1\\nRUN --mount=type=cache,target=/c id >/id\\n' >build/Dockerfile")
    machine.out("docker build --quiet --tag gpuquilt/test:1 build", timeout=180)
    # As if the owner had installed Docker and never heard of live-restore: only a reload before the restart saves containers.
    machine.out(
        f"systemctl stop docker docker.socket; rm /var/lib/gpuquilt/docker.json; echo '{DAEMON}' >/etc/docker/daemon.json"
    )
    machine.out(f"systemctl start docker; docker run --detach --stop-timeout 1 --name goes-on gpuquilt/test:1 {LOOP}")
    before, daemon = container(machine, "goes-on"), machine.shows("docker", "MainPID")
    machine.out("systemctl daemon-reload")
    deploy(there, tmp_path)
    assert machine.shows("docker", "MainPID") != daemon
    assert container(machine, "goes-on") == before
    assert machine.out("docker exec goes-on cat /id").startswith("uid=0")


def test_a_second_run_changes_nothing(there: Fresh, machine: Machine, tmp_path: Path) -> None:
    def look() -> list[object]:
        files = machine.out("stat --format='%n %i %z' /etc/docker/daemon.json /var/lib/gpuquilt/docker.json")
        return [files, machine.shows("docker", "MainPID"), reloads(machine), container(machine, "goes-on")]

    before = look()
    assert int(reloads(machine)) > 0, "those of the tests before are seen"
    assert changes(deploy(there, tmp_path)) == {}
    assert look() == before


def test_systemd_knows_of_a_gpu_that_came_by_cdi(there: Fresh, machine: Machine, tmp_path: Path) -> None:
    """A device like NVIDIA's, because there is none here; the container's unit is what a daemon-reload goes by.

    The container cannot write to its own files, like ours.
    """
    deploy(there, tmp_path, docker_options={"features": {"cdi": True}})
    machine.out(f"mknod /dev/like-nvidia c 195 0; mkdir -p /etc/cdi; echo '{SPECIFICATION}' >/etc/cdi/nvidia.yaml")
    machine.out(f"printf %s {shlex.quote(HOOK)} >/usr/local/bin/update-ldcache; chmod 755 /usr/local/bin/update-ldcache")
    options = "--read-only --stop-timeout 1 --name has-gpu --device nvidia.com/gpu=0"
    machine.out(f"docker run --detach {options} gpuquilt/test:1 {LOOP}")
    found = seen.parse(machine.out(seen.COMMAND).splitlines())
    (has_gpu,) = [container for container in found.containers if container.gpu]
    assert has_gpu.name == "has-gpu"
    assert "/dev/char/195:0 rwm" in has_gpu.allowed
    assert exposed(found.containers) == []
    assert "=> /opt/driver/libz.so.1" in machine.out("docker exec has-gpu /sbin/ldconfig -p")
    assert machine.ssh("docker exec has-gpu touch /etc/written").status != 0


def test_it_is_taken_back_and_the_owners_things_stay(there: Fresh, machine: Machine, tmp_path: Path) -> None:
    images = machine.out("ls /var/lib/docker/image/overlay2/layerdb/sha256")
    deploy(there, tmp_path, "tests/sandbox/deploys/docker_remove.py")
    assert json.loads(machine.out("cat /etc/docker/daemon.json")) == OWNERS
    assert machine.ssh("command -v dockerd").status != 0
    assert machine.out("ls /var/lib/docker/image/overlay2/layerdb/sha256") == images
    left = machine.out(
        "find /etc/apt /var/lib/gpuquilt -path '*/work' -prune -o -name '*docker*' -print -o -name '*nvidia*' -print"
    )
    assert left == "/etc/apt/keyrings/docker.asc"
    assert changes(deploy(there, tmp_path, "tests/sandbox/deploys/docker_remove.py")) == {}
