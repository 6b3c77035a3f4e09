"""The sandbox itself, as a second one beside the one that the other tests use: made, broken, taken over, removed."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import ROOT, Ended, pyinfra, pyinfra_command, run
from tests.sandbox.conftest import changes, need_root

PREFIX = "gqt"
SUBNET = "198.18.78.0/24"
ADDRESS = "198.18.78.11"
NAME = f"{PREFIX}-w1"
BRIDGE = f"{PREFIX}-br0"
CABLE = f"vb-{NAME}"
TABLE = f"gpuquilt_sandbox_{PREFIX}"
STATE = Path("/var/lib/gpuquilt-sandbox-test")
CACHE = Path("/var/cache/gpuquilt-sandbox")
MACHINE = STATE / "machines" / NAME


def data(**settings: object) -> list[str]:
    """Settings of this test's sandbox, some of them changed, as options of pyinfra."""
    ours = {
        "sandbox_prefix": PREFIX,
        "sandbox_subnet": SUBNET,
        "sandbox_state": str(STATE),
        "sandbox_machines": [{"name": "w1", "octet": 11}],
    }
    return [
        word
        for key, value in (ours | settings).items()
        for word in ("--data", f"{key}={value if isinstance(value, str) else json.dumps(value)}")
    ]


def up(*arguments: str, **settings: object) -> Ended:
    return pyinfra("--json", "-y", "@local", "deploys/sandbox.py", *data(**settings), *arguments)


def down(**settings: object) -> Ended:
    return pyinfra("--json", "-y", "@local", "deploys/sandbox_down.py", *data(**settings))


def must(ended: Ended) -> Ended:
    assert ended.status == 0, ended.text
    return ended


def inside(command: str) -> str:
    """What a command prints in the machine."""
    ended = run(
        *("ssh", "-o", "BatchMode=yes", "-o", f"UserKnownHostsFile={STATE}/ssh/known_hosts", "-i", f"{STATE}/ssh/id_ed25519"),
        *("-o", "StrictHostKeyChecking=yes", "-o", "ConnectTimeout=10", f"root@{ADDRESS}", command),
    )
    return must(ended).output.strip()


def processes() -> list[int]:
    """The systemd-nspawn processes of this test's sandbox."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if words[0].endswith(b"systemd-nspawn") and f"--machine={NAME}".encode() in words:
            found.append(int(path.parent.name))
    return found


def inits() -> int:
    """How many machines of this name run, by their PID 1: a killed systemd-nspawn leaves the machine itself running."""
    found = 0
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            words = next(line for line in status.read_text().splitlines() if line.startswith("NSpid")).split()
            found += words[2:] == ["1"] and (status.parent / "root/etc/hostname").read_text().strip() == NAME
        except (OSError, StopIteration):
            continue
    return found


def kill(pid: int) -> None:
    """As a power cut would: no chance to tidy up."""
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while processes() and time.monotonic() < deadline:
        time.sleep(0.1)


SANDBOXES = re.compile(rf"(?<![a-z0-9])(gq|{PREFIX})(?![a-z0-9])")
"""What the names of this sandbox, and of the one of the other tests, which must stay, contain."""


def of_sandboxes(entries: Iterable[str]) -> list[str]:
    """The rest comes and goes with whatever else runs on this computer."""
    return sorted(entry for entry in entries if SANDBOXES.search(entry.partition("{")[0]))


@dataclass(frozen=True)
class Traces:
    """What a sandbox could leave on this computer, and what it could take from the other one."""

    interfaces: list[str]
    rules: list[str]
    mounts: list[str]
    kernel: list[str]
    groups: list[str]
    processes: list[int]
    machines: int
    folder: bool

    @classmethod
    def look(cls) -> Traces:
        mounts = [" ".join(line.split()[:3]) for line in Path("/proc/mounts").read_text().splitlines()]
        settings = ("net/ipv4/ip_forward", "fs/inotify/max_user_instances")
        return cls(
            interfaces=of_sandboxes(path.name for path in Path("/sys/class/net").iterdir()),
            # One entry for each table, without counters.
            rules=of_sandboxes(re.split(r"^(?=table )", must(run("nft", "--stateless", "list", "ruleset")).output, flags=re.M)),
            mounts=of_sandboxes(mounts),
            kernel=[(Path("/proc/sys") / setting).read_text() for setting in settings],
            # Unlike a recursive glob, os.walk passes over a group that vanishes meanwhile.
            groups=sorted(
                f"{folder}/{name}"
                for folder, names, _ in os.walk("/sys/fs/cgroup")
                for name in names
                if name.startswith(f"{PREFIX}-")
            ),
            processes=processes(),
            machines=inits(),
            folder=STATE.exists(),
        )


@pytest.fixture(scope="module")
def before() -> Iterator[Traces]:
    """What was there before; and afterwards nothing of this file is left, whatever failed."""
    need_root()
    must(down())
    yield Traces.look()
    must(down())


@pytest.fixture(scope="module")
def machine(before: Traces) -> None:
    """The sandbox of this file, made once."""
    must(up())


@pytest.fixture(autouse=True)
def _whole_again(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that failed in the middle does not spoil the next."""
    yield
    if "machine" in request.fixturenames and not STATE.exists():
        must(up())


def test_a_machine_is_a_whole_computer(machine: None) -> None:
    assert inside("systemctl is-system-running --wait; hostname; cat /proc/1/comm").split() == ["running", NAME, "systemd"]
    assert f"{ADDRESS}/24" in inside("ip -4 address show host0")
    assert inside("grep VERSION_CODENAME /etc/os-release") == "VERSION_CODENAME=trixie"
    assert not inside("find /srv/inputs -writable"), "a machine could change the inputs"
    assert inside("cat /proc/1/cgroup").splitlines()[-1] == "0::/init.scope"


def test_a_machine_installs_packages_from_the_mirror_of_this_computer(machine: None) -> None:
    inside("apt-get update -qq && apt-get install -y -qq --no-install-recommends hello 2>/dev/null")
    assert inside("hello") == "Hello, world!"


def test_the_mirror_has_both_commits_and_every_object(machine: None) -> None:
    for commit in ("e3a74b299085cd00013804f7fca2e03441b2da20", "0c1e57098bba43ac29e6e3b677cdceebdd22334f"):
        must(run("git", "-C", str(CACHE / "inputs" / "llama.cpp.git"), "rev-list", "--objects", "--quiet", commit))


def test_running_it_again_changes_nothing(machine: None) -> None:
    pids = processes()
    assert changes(must(up())) == {}
    assert processes() == pids


def test_after_a_power_cut_it_is_taken_over(machine: None) -> None:
    inside("echo mine >/root/kept; sync")
    # Everything in the kernel is gone, the folders are as they were.
    (pid,) = processes()
    run("ip", "link", "delete", CABLE)
    kill(pid)
    must(run("umount", f"{MACHINE}/root"))
    must(run("ip", "link", "delete", BRIDGE))
    must(run("nft", "delete", "table", "ip", TABLE))
    must(up())
    assert inside("cat /root/kept") == "mine"
    assert changes(must(up())) == {}


def test_a_killed_machine_whose_mount_and_cable_stayed_starts_again(machine: None) -> None:
    (pid,) = processes()
    kill(pid)
    must(up())
    assert inside("hostname") == NAME
    assert processes() != [pid]
    assert inits() == 1
    assert changes(must(up())) == {}


def test_a_bridge_that_was_deleted_is_made_again_and_the_machines_stay_up(machine: None) -> None:
    pids = processes()
    must(run("ip", "link", "delete", BRIDGE))
    must(up())
    assert processes() == pids
    assert inside("hostname") == NAME


def test_a_machine_that_lost_its_cable_is_started_again(machine: None) -> None:
    pids = processes()
    must(run("ip", "link", "delete", CABLE))
    must(up())
    assert inside("hostname") == NAME
    assert processes() != pids
    assert changes(must(up())) == {}


def test_what_was_half_made_is_made_again(machine: None) -> None:
    must(down())
    # A run that was killed while it made the machine, while it made the keys, and while it wrote machines.json.
    (MACHINE.parent / f"{NAME}.new" / "upper").mkdir(parents=True)
    (STATE / "ssh").mkdir()
    (STATE / "ssh" / "id_ed25519").write_text("half a key")
    (STATE / "machines.json").write_text('{"prefix": "gq')
    must(up())
    assert inside("hostname") == NAME
    assert not list(MACHINE.parent.glob("*.new"))


def test_a_run_that_was_killed_is_finished_by_the_next(machine: None) -> None:
    must(down())
    deploy = subprocess.Popen(
        pyinfra_command("-y", "@local", "deploys/sandbox.py", *data()),
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 60
    while not processes() and time.monotonic() < deadline:
        time.sleep(0.02)
    deploy.kill()
    deploy.wait()
    must(up())
    assert inside("hostname") == NAME
    assert len(processes()) == 1


@pytest.mark.long
def test_interrupted_downloads_are_cleared_and_done_again(before: Traces, tmp_path: Path) -> None:
    """The mirror alone: what is broken is recognised by what it lacks, and replaced."""
    cache = tmp_path / "cache"
    (cache / "inputs").mkdir(parents=True)
    (cache / "base").symlink_to(CACHE / "base")
    os.link(CACHE / "inputs" / "gemma-3-270m-q4_k_m.gguf", cache / "inputs" / "gemma-3-270m-q4_k_m.gguf")
    shutil.copytree(CACHE / "inputs" / "llama.cpp.git", cache / "inputs" / "llama.cpp.git")
    for pack in (cache / "inputs" / "llama.cpp.git" / "objects" / "pack").iterdir():
        pack.unlink()
    (cache / "inputs" / "llama.cpp.git.partial").mkdir()
    (cache / "inputs" / "llama.cpp.git.partial" / "half").write_text("a source package")
    must(down())
    must(up(sandbox_cache=str(cache)))
    must(down(sandbox_cache=str(cache)))
    commit = "0c1e57098bba43ac29e6e3b677cdceebdd22334f"
    must(run("git", "-C", str(cache / "inputs" / "llama.cpp.git"), "rev-list", "--objects", "--quiet", commit))
    assert sorted(path.name for path in (cache / "inputs").iterdir()) == ["gemma-3-270m-q4_k_m.gguf", "llama.cpp.git"]


def test_removing_it_leaves_nothing_and_touches_nothing_else(before: Traces) -> None:
    must(up())
    assert Traces.look() != before
    must(down())
    assert Traces.look() == before
    assert changes(must(down())) == {}
    assert (CACHE / "inputs" / "llama.cpp.git").is_dir(), "the downloads stay for the next time"


def test_the_last_sandbox_puts_the_kernel_settings_back(machine: None, before: Traces) -> None:
    """In a network of its own this sandbox is the only one; the package mirror is out of reach there, which is said."""
    must(down())
    script = """
mount -t tmpfs tmpfs /run && mkdir /run/groups && mount --rbind /sys/fs/cgroup /run/groups || exit 9
# Only then /sys shows the interfaces of this network.
mount -t sysfs sysfs /sys && mount --rbind /run/groups /sys/fs/cgroup || exit 9
echo 0 >/proc/sys/net/ipv4/ip_forward && cd "$0" || exit 9
forwarding() { echo "$1: routing $(cat /proc/sys/net/ipv4/ip_forward), $(nft list tables | wc -l) tables"; }
forwarding before
"$@" deploys/sandbox.py
forwarding up
"$@" deploys/sandbox_down.py
forwarding down
ls -A /run
# Something that was started while the sandbox was there.
"$@" deploys/sandbox.py
ip link add gqtest0 type bridge
"$@" deploys/sandbox_down.py
forwarding "beside a bridge"
"""
    command = pyinfra_command("--json", "-y", *data(), "@local")
    ended = must(run("unshare", "--net", "--mount", "sh", "-c", script, str(ROOT), *command, timeout=600))
    assert [line for line in ended.output.splitlines() if "routing" in line] == [
        "before: routing 0, 0 tables",
        "up: routing 1, 1 tables",
        "down: routing 0, 0 tables",
        "beside a bridge: routing 1, 0 tables",
    ]
    assert "the kernel settings stay as they are, because gqtest0 may need them" in ended.errors
    assert "gpuquilt-sandbox" not in ended.output.splitlines(), "something of ours is left in /run"
    assert f"{NAME}: the package mirror" in ended.errors
    assert Traces.look() == before


def test_half_a_sandbox_is_removed_too(before: Traces) -> None:
    must(up())
    (pid,) = processes()
    kill(pid)
    run("ip", "link", "delete", CABLE)
    must(run("nft", "delete", "table", "ip", TABLE))
    (STATE / "machines.json").unlink()
    must(down())
    assert Traces.look() == before


def test_purging_removes_the_cache_but_not_one_that_another_sandbox_stands_on(machine: None, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    (cache / "inputs").mkdir(parents=True)
    (cache / "lock").touch()
    other = {"sandbox_prefix": "gqu", "sandbox_state": "/var/lib/gpuquilt-sandbox-nothing", "sandbox_purge": True}
    refused = down(**other)
    assert refused.status != 0
    assert "another sandbox stands on it" in refused.text
    assert (CACHE / "base" / "trixie").is_dir()
    must(down(**other, sandbox_cache=str(cache)))
    assert not cache.exists()


def test_a_sandbox_with_other_settings_is_not_run_over(machine: None) -> None:
    pids = processes()
    for settings, sentence in (
        ({"sandbox_subnet": "198.18.79.0/24"}, "was made with other settings (sandbox_subnet, gqt-w1): remove it first"),
        ({"sandbox_prefix": "gqu"}, "holds the sandbox 'gqt' and not 'gqu'"),
    ):
        refused = up(**settings)
        assert refused.status != 0
        assert sentence in refused.text
        assert "Traceback" not in refused.text
    assert processes() == pids


def refusal(*arguments: str, **settings: object) -> str:
    """What a run says that must be refused before it changes anything."""
    traces = Traces.look()
    ended = up(*arguments, **settings)
    assert ended.status != 0
    assert Traces.look() == traces
    assert "Traceback" not in ended.text
    return ended.text


def test_a_subnet_that_something_else_uses_is_refused(before: Traces) -> None:
    must(down())
    must(run("ip", "link", "add", "gqtest0", "type", "bridge"))
    try:
        must(run("ip", "address", "add", "198.18.78.200/25", "dev", "gqtest0"))
        must(run("ip", "link", "set", "gqtest0", "up"))
        said = refusal()
    finally:
        must(run("ip", "link", "delete", "gqtest0"))
    assert "198.18.78.0/24 is already in use: the interface gqtest0 leads to 198.18.78.128/25; set sandbox_subnet" in said


def test_too_little_disk_is_refused(before: Traces, tmp_path: Path) -> None:
    must(run("mount", "-t", "tmpfs", "-o", "size=100m", "tmpfs", str(tmp_path)))
    try:
        said = refusal(sandbox_state=f"{tmp_path}/state", sandbox_cache=f"{tmp_path}/cache")
    finally:
        must(run("umount", str(tmp_path)))
    assert f"the file system at {tmp_path} has 100 MiB free and the sandbox needs 6144 MiB there" in said


def test_a_folder_with_other_things_in_it_is_refused(before: Traces, tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    for ended in (up(sandbox_state=str(tmp_path)), down(sandbox_state=str(tmp_path))):
        assert ended.status != 0
        assert f"{tmp_path} holds other things than a sandbox (letters)" in ended.text
    assert [path.name for path in tmp_path.iterdir()] == ["letters"]


def test_without_root_it_is_refused_together_with_all_else_that_is_wrong(before: Traces) -> None:
    # Who runs it is root outside and nobody in particular inside, so that the checkout can be read wherever it lies.
    command = ["unshare", "--user", "--map-user=1000", *pyinfra_command("-y", "@local", "deploys/sandbox.py")]
    ended = run(*command, *data(sandbox_subnet="127.0.0.0/24"))
    assert ended.status != 0
    assert "the sandbox needs root: run it as root or with sudo" in ended.text
    assert "Traceback" not in ended.text
    ended = run(*command[:-1], "deploys/sandbox_down.py", *data())
    assert ended.status != 0
    assert "the sandbox needs root" in ended.text


def test_a_wrong_setting_is_refused_with_what_would_be_right(before: Traces) -> None:
    for settings, sentence in (
        ({"sandbox_subnet": "198.18.78.0/16"}, "sandbox_subnet"),
        ({"sandbox_prefix": "much-too-long"}, "sandbox_prefix"),
        ({"sandbox_subnets": SUBNET}, "did you mean 'sandbox_subnet'"),
    ):
        assert sentence in refusal(**settings)


def test_another_computer_is_refused(before: Traces) -> None:
    ended = pyinfra("-y", "@fake/elsewhere", "deploys/sandbox.py", *data())
    assert ended.status != 0
    assert "use @local as the inventory" in ended.text


def test_a_firewall_that_cuts_the_machines_off_is_told(machine: None) -> None:
    """As Docker's does: what is forwarded is dropped."""
    rules = f"table inet gqtest {{ chain forward {{ type filter hook forward priority 0; iifname {BRIDGE} drop; }}; }}"
    must(run("nft", rules))
    try:
        ended = up()
    finally:
        must(run("nft", "delete", "table", "inet", "gqtest"))
    assert ended.status != 0
    assert f"{NAME}: the package mirror" in ended.text
    assert "drops what is forwarded" in ended.text
    assert changes(must(up())) == {}
