"""NVIDIA's driver on machines that are not ours yet: what is made ready for it, that nothing moves it, that any run goes on.

The machines have no card and share this computer's kernel, so the driver can be installed there and not be loaded.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest

from tests.conftest import ROOT, Ended, pyinfra, pyinfra_command
from tests.sandbox.archive import HOLD, WAIT, Archive, publish
from tests.sandbox.conftest import Machine, changes, kill
from tests.sandbox.fresh import Fresh, fresh

PREPARE = "deploys/prepare.py"
SIMULATE = "/etc/apt/apt.conf.d/99test"
NO_DRIVER = "tests/sandbox/deploys/no_driver.py"
DRIVER_ALONE = "tests/sandbox/deploys/driver.py"
PINS = "/etc/apt/preferences.d/00gpuquilt-nvidia"
SOURCE = "/etc/apt/sources.list.d/gpuquilt-nvidia.sources"
PARTS = (
    "nvidia-driver-cuda",
    "nvidia-kernel-dkms",
    "libcuda1",
    "libnvidia-ptxjitcompiler1",
    "nvidia-modprobe",
    "nvidia-driver-pinning-580",
)
PASCAL, ADA = "10de:1b06", "10de:2684"
DISTRIBUTIONS = {
    "d12": {"gpus": [PASCAL], "driver_source": "distribution", "nvidia_toolkit": False},
    "d13": {"gpus": [ADA], "driver_source": "distribution", "nvidia_toolkit": False},
}

KERNEL = "6.1.0-99-test"
MAKE_INITRD = f'#!/bin/sh\n{WAIT}\necho new >"/boot/initrd.img-$3.new"; mv "/boot/initrd.img-$3.new" "/boot/initrd.img-$3"\n'


@pytest.fixture(scope="module")
def machines() -> Iterator[Fresh]:
    with fresh("gqd", "198.18.79.0/24", {"d12": "bookworm", "d13": "trixie", "own": "bookworm"}) as made:
        yield made


def prepared(inventory: str, deploy: str = DRIVER_ALONE, timeout: float = 600) -> Ended:
    """What a run says that succeeds."""
    ended = pyinfra("-y", "--json", inventory, deploy, timeout=timeout)
    assert ended.status == 0, ended.text
    return ended


def installed(machine: Machine) -> dict[str, str]:
    """Package → its branch and dpkg's word for it, of the parts of the driver."""
    lines = machine.out(
        "dpkg-query -W -f '${Package} ${Version} ${db:Status-Status}\\n' '*nvidia*' libcuda1 2>/dev/null || true"
    ).splitlines()
    words = [line.split() for line in lines if len(line.split()) == 3]
    return {name: f"{version[:3]} {status}" for name, version, status in words}


@pytest.fixture(scope="module")
def simulated(machines: Fresh, tmp_path_factory: pytest.TempPathFactory) -> tuple[Ended, str]:
    """A run in which apt does everything but install; what it said, and the inventory."""
    for name in ("d12", "d13"):
        machines.machines[name].out(f"echo 'APT::Get::Simulate \"true\";' >{SIMULATE}")
    inventory = machines.inventory(tmp_path_factory.mktemp("simulated"), DISTRIBUTIONS)
    return prepared(inventory), inventory


def wanted_parts(machine: Machine) -> dict[str, str]:
    """Package → version, of what apt was told to install for the driver."""
    log = machine.out("grep '^Inst .*nvidia\\|^Inst libcuda1\\|^Inst linux-headers-amd64' /var/lib/gpuquilt/work/*nvidia/log")
    return {line.split()[1]: line.split("(")[1].split()[0] for line in log.splitlines()}


@pytest.mark.parametrize(
    ("name", "branch", "module", "absent"),
    [
        ("d12", "535", "nvidia-kernel-dkms", "nvidia-open-kernel-dkms"),
        ("d13", "550", "nvidia-kernel-dkms", "nvidia-open-kernel-dkms"),
    ],
)
def test_the_distributions_driver(
    machines: Fresh, simulated: tuple[Ended, str], name: str, branch: str, module: str, absent: str
) -> None:
    machine = machines.machines[name]
    parts = wanted_parts(machine)
    for package in (module, "libcuda1", "nvidia-smi", "nvidia-persistenced", "firmware-nvidia-gsp"):
        assert parts[package].startswith(f"{branch}."), parts
    assert absent not in parts
    assert "linux-headers-amd64" in parts
    assert machine.out(f"grep -c 'stays at branch {branch}' {PINS}") == "1"
    sources = machine.out("cat /etc/apt/sources.list.d/gpuquilt-components.sources")
    assert sources.count("Components: contrib non-free non-free-firmware") == 3, sources
    assert machine.out("apt-config dump Unattended-Upgrade::Package-Blacklist | grep -c nvidia") == "1"
    assert "blacklist nouveau" in machine.out("cat /etc/modprobe.d/gpuquilt-nvidia.conf")
    assert machine.out("systemctl is-enabled gpuquilt-nvidia.service") == "enabled"


def test_no_other_branch_of_the_distribution_could_be_installed(machines: Fresh, simulated: tuple[Ended, str]) -> None:
    """Debian has 535 beside its own branch; nothing that is only called like the driver is held."""
    policy = "apt-cache policy {} | sed -n 's/^ *Candidate: //p'"
    d13 = machines.machines["d13"]
    assert d13.out(policy.format("nvidia-tesla-535-driver")) == "(none)"
    for package in ("libcuda1", "nvidia-kernel-common", "nvidia-modprobe", "nvidia-cuda-toolkit", "libnvidia-egl-wayland1"):
        assert d13.out(policy.format(package)) not in ("", "(none)"), package


def test_all_but_the_installation_is_done(simulated: tuple[Ended, str]) -> None:
    ended = pyinfra("--dry", "--json", simulated[1], DRIVER_ALONE)
    assert ended.status == 0, ended.text
    owed = [operation["name"] for operation in json.loads(ended.output)["plan"] if operation["hosts_with_change"]]
    assert owed == ["NVIDIA driver | Packages of the driver"]


@pytest.fixture(scope="module")
def archive(machines: Fresh, tmp_path_factory: pytest.TempPathFactory) -> Archive:
    """A machine whose only package source is to be NVIDIA's repository, with the wanted branch and the next one."""
    own = machines.machines["own"]
    own.out(
        "apt-get update -qq && apt-get install -yqq --no-install-recommends ca-certificates curl gpg >/dev/null"
        " && rm /etc/apt/sources.list.d/debian.sources && apt-get update -qq",
        timeout=300,
    )
    return publish(own, tmp_path_factory.mktemp("archive"))


@pytest.fixture(scope="module")
def inventory(machines: Fresh, archive: Archive, tmp_path_factory: pytest.TempPathFactory) -> str:
    hosts = {"own": {"gpus": [PASCAL], "driver": 580, "driver_source": "nvidia", **archive.settings}}
    return machines.inventory(tmp_path_factory.mktemp("own"), hosts)


def struck(inventory: str, machine: Machine, moment: Callable[[], bool]) -> None:
    """A run that ends as in a power cut: at that moment it is killed, and all that it has started on the machine."""
    command = pyinfra_command("-y", inventory, DRIVER_ALONE)
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    deadline = time.monotonic() + 90
    try:
        while not moment():
            assert process.poll() is None, process.stdout and process.stdout.read().decode()
            assert time.monotonic() < deadline
    finally:
        kill(process)
        machine.ssh("systemctl kill --signal=KILL 'gpuquilt-*' 2>/dev/null; rm -f /etc/dpkg/dpkg.cfg.d/hold")


def shows(machine: Machine, command: str) -> Callable[[], bool]:
    return lambda: machine.ssh(command).status == 0


def test_a_run_that_is_struck_anywhere_is_finished_by_the_next(machines: Fresh, inventory: str) -> None:
    own = machines.machines["own"]
    # A kernel, and what makes its initial RAM disk.
    own.out(
        f"mkdir -p /lib/modules/{KERNEL} && echo old >/boot/initrd.img-{KERNEL} && touch -d 2020-01-01 /boot/initrd.img-{KERNEL}"
        f" && printf %s '{MAKE_INITRD}' >/usr/sbin/update-initramfs && chmod 755 /usr/sbin/update-initramfs"
    )

    struck(inventory, own, shows(own, f"until [ -e {SOURCE} ]; do sleep 0.02; done"))
    assert "nvidia-kernel-dkms" not in installed(own)

    own.out(f"touch {HOLD}")
    struck(inventory, own, lambda: installed(own).get("nvidia-kernel-dkms") == "580 half-configured")
    assert installed(own)["nvidia-kernel-dkms"] == "580 half-configured"

    # dpkg does not return before the hook has ended.
    own.out(f"rm {HOLD}; echo 'post-invoke=touch /run/done; sleep 600' >/etc/dpkg/dpkg.cfg.d/hold")
    struck(inventory, own, shows(own, "[ -e /run/done ]"))
    assert installed(own)["nvidia-kernel-dkms"] == "580 installed"

    own.out(f"touch {HOLD}")
    struck(inventory, own, shows(own, "systemctl is-active --quiet gpuquilt-nvidia-initramfs"))
    assert own.out(f"cat /boot/initrd.img-{KERNEL}") == "old"

    own.out(f"rm {HOLD}")
    ended = prepared(inventory)
    assert "NVIDIA driver | nouveau off from the start" in changes(ended)
    assert own.out(f"cat /boot/initrd.img-{KERNEL}") == "new"
    assert own.out("dpkg --audit") == ""


def test_the_wanted_branch_alone_is_there_and_stays(machines: Fresh, inventory: str) -> None:
    prepared(inventory)
    own = machines.machines["own"]
    assert installed(own) == dict.fromkeys(PARTS, "580 installed")
    own.out("DEBIAN_FRONTEND=noninteractive apt-get -yqq update && apt-get -yqq dist-upgrade", timeout=300)
    assert installed(own) == dict.fromkeys(PARTS, "580 installed")
    without = own.out(f"mv {PINS} /root/pins; apt-get --simulate dist-upgrade; mv /root/pins {PINS}")
    assert "Inst nvidia-kernel-dkms [580.95.05-1] (590.95.05-1" in without


def test_a_second_run_changes_nothing(machines: Fresh, inventory: str) -> None:
    prepared(inventory)
    assert changes(prepared(inventory)) == {}


def test_an_old_driver_goes_if_nothing_else_goes_with_it(machines: Fresh, inventory: str) -> None:
    own = machines.machines["own"]
    old = "nvidia-kernel-dkms=535.261.03-1 libcuda1=535.261.03-1 nvidia-alternative=535.261.03-1"
    own.out(
        f"apt-get -yqq purge nvidia-driver-cuda && mv {PINS} /root/pins"
        f" && apt-get -yqq --allow-downgrades install {old} renderer; mv /root/pins {PINS}"
    )
    before = installed(own)
    assert before["nvidia-kernel-dkms"] == "535 half-configured"
    refused = pyinfra("-y", inventory, DRIVER_ALONE)
    assert refused.status != 0
    assert f"{own.name}: renderer would go with the old NVIDIA driver, so nothing was removed: " in refused.text, refused.text
    assert installed(own) == before
    own.out("apt-get -yqq purge renderer || true")
    prepared(inventory)
    assert installed(own) == dict.fromkeys(PARTS, "580 installed")
    assert changes(prepared(inventory)) == {}


def test_the_module_is_exchanged_by_its_setting(
    machines: Fresh, archive: Archive, inventory: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    own = machines.machines["own"]
    setting = {"driver": 580, "driver_source": "nvidia", "driver_flavour": "open", **archive.settings}
    prepared(machines.inventory(tmp_path_factory.mktemp("open"), {"own": {"gpus": [ADA], **setting}}))
    open_module = {"nvidia-kernel-open-dkms" if name == "nvidia-kernel-dkms" else name for name in PARTS}
    assert installed(own) == dict.fromkeys(open_module, "580 installed")


def test_everything_is_taken_back(machines: Fresh, inventory: str) -> None:
    own = machines.machines["own"]
    there = "find /etc /var/lib/gpuquilt/packages -name '*gpuquilt*' -o -path '/var/lib/gpuquilt/packages/*' | sort"
    assert SOURCE in own.out(there)
    assert own.out(f"cat /boot/initrd.img-{KERNEL}") == "new"
    own.out(f"echo old >/boot/initrd.img-{KERNEL}")
    prepared(inventory, NO_DRIVER)
    assert installed(own) == {}
    assert own.out(there) == ""
    assert own.out(f"cat /boot/initrd.img-{KERNEL}") == "new"
    assert changes(prepared(inventory, NO_DRIVER)) == {}


@pytest.mark.long
def test_the_distributions_driver_is_really_installed_and_its_module_built(
    machines: Fresh, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """With Debian's kernels, and all of deploys/prepare.py; Debian has no open module that can be had, see the catalog."""
    install = "DEBIAN_FRONTEND=noninteractive apt-get install -yqq --no-install-recommends linux-image-amd64"
    for name in DISTRIBUTIONS:
        machines.machines[name].out(f"rm -f {SIMULATE}; apt-get update -qq && {install}", timeout=900)
    inventory = machines.inventory(tmp_path_factory.mktemp("real"), DISTRIBUTIONS)
    ended = prepared(inventory, PREPARE, timeout=3600)
    for name, version, licence in (("d12", "535.", "NVIDIA"), ("d13", "550.", "NVIDIA")):
        machine = machines.machines[name]
        sentence = (
            rf"{machine.name}\] NVIDIA driver {version}\S+ \(\S+ module\) is installed and not loaded, since no card is seen"
        )
        assert re.search(sentence, ended.text), ended.text
        kernel = machine.out("ls /boot | sed -n 's/^vmlinuz-//p'")
        shown = machine.out(f"for field in version license; do /usr/sbin/modinfo -k {kernel} -F $field nvidia-current; done")
        assert shown.splitlines()[0].startswith(version)
        assert shown.splitlines()[1] == licence
        assert machine.out(f"lsinitramfs /boot/initrd.img-{kernel} | grep -c modprobe.d/gpuquilt-nvidia.conf") == "1"
        # What the kernel would ask for when it sees the card, with our file and without any.
        asked = f"/usr/sbin/modprobe {{}} -S {kernel} --show-depends pci:v000010DEd00001B06sv0sd0bc03sc00i00"
        assert "nouveau" in machine.out(asked.format("-C /dev/null"))
        assert "nouveau" not in machine.out(asked.format(""))
        assert machine.out("dpkg --audit") == ""
    assert changes(prepared(inventory, PREPARE)) == {}
