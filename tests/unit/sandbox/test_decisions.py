"""What is done with what was seen, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Network
from typing import Any

import pytest
from pydantic import ValidationError

from roles.base.apt import Source
from roles.base.settings import HostData, read_settings
from roles.sandbox import decisions
from roles.sandbox.decisions import Step
from roles.sandbox.layout import Layout, description_text, lay_out
from roles.sandbox.render import nspawn_command, render
from roles.sandbox.seen import PACKAGES, Route, Running, Seen, SeenMachine, look, parse
from roles.sandbox.settings import Settings

LAYOUT = lay_out(Settings())
W1 = LAYOUT.machines[0]
RUNNING = Running(pid=100, name=W1.name, directory=W1.root)
WHOLE = SeenMachine(name=W1.name, mounted=True, cable=True, plugged=True)
NOTHING = Seen(
    user=0,
    release=("debian", "12", "bookworm"),
    sources=(Source("http://deb.example/debian", ("bookworm",), ("main",)),),
    free={"state": ("/", 50_000), "cache": ("/", 50_000)},
)
GROUP = f"/sys/fs/cgroup/unified/{W1.name}"


@pytest.mark.parametrize(
    ("seen", "steps"),
    [
        (NOTHING, [Step.MAKE, Step.START]),
        (replace(NOTHING, machines={W1.name: WHOLE}, running=(RUNNING,)), []),
        (replace(NOTHING, machines={W1.name: SeenMachine(W1.name)}), [Step.START]),
        (replace(NOTHING, machines={W1.name: replace(WHOLE, plugged=False)}, running=(RUNNING,)), [Step.PLUG]),
        (
            replace(NOTHING, machines={W1.name: replace(WHOLE, cable=False, plugged=False)}, running=(RUNNING,)),
            [Step.STOP, Step.START],
        ),
        (
            replace(NOTHING, machines={W1.name: replace(WHOLE, mounted=False)}, running=(RUNNING,)),
            [Step.STOP, Step.START],
        ),
        # systemd-nspawn was killed; the machine lives on in its control group, or only its cable is left.
        (replace(NOTHING, machines={W1.name: WHOLE}, groups=(GROUP,)), [Step.STOP, Step.START]),
        (replace(NOTHING, machines={W1.name: WHOLE}, cables=(W1.interface,)), [Step.STOP, Step.START]),
        (replace(NOTHING, running=(RUNNING,)), [Step.STOP, Step.MAKE, Step.START]),
        (
            replace(NOTHING, machines={W1.name: WHOLE}, running=(RUNNING, replace(RUNNING, pid=101))),
            [Step.STOP, Step.START],
        ),
    ],
)
def test_what_is_done_with_a_machine(seen: Seen, steps: list[Step]) -> None:
    assert list(decisions.steps(seen, W1)) == steps


def test_nothing_speaks_against_a_plain_debian() -> None:
    assert decisions.refusals(NOTHING, LAYOUT, ["192.0.2.53"], local=True) == []


def test_everything_that_is_wrong_is_said_at_once() -> None:
    seen = Seen(
        user=1000,
        release=("ubuntu", "24.04", "noble"),
        routes=(Route("wlan0", IPv4Network("198.18.0.0/15")),),
        free={"state": ("/", 100), "cache": ("/var/cache", 100)},
        state_entries=frozenset({"letters"}),
    )
    said = decisions.refusals(seen, LAYOUT, [], local=False)
    expected = (
        "use @local as the inventory",
        "run it as root or with sudo",
        "Debian 12 or 13 as root file system and this is ubuntu 24.04",
        "the interface wlan0 leads to 198.18.0.0/15; set sandbox_subnet",
        "holds other things than a sandbox (letters)",
        "the file system at / has 100 MiB free and the sandbox needs 4096 MiB",
        "the file system at /var/cache has 100 MiB free and the sandbox needs 2048 MiB",
        "no http(s) package mirror",
        "set sandbox_nameserver",
    )
    assert len(said) == len(expected)
    for sentence, part in zip(said, expected, strict=True):
        assert part in sentence


def test_our_own_bridge_does_not_count_as_somebody_elses() -> None:
    seen = replace(NOTHING, routes=(Route(LAYOUT.bridge, LAYOUT.subnet),), has_bridge=True)
    assert decisions.refusals(seen, LAYOUT, ["192.0.2.53"], local=True) == []
    assert decisions.bridge_is_up(seen, LAYOUT)
    assert not decisions.bridge_is_up(replace(seen, routes=()), LAYOUT)


def test_what_is_there_already_needs_no_disk() -> None:
    machines = {machine.name: SeenMachine(machine.name) for machine in LAYOUT.machines}
    full = replace(NOTHING, free={"state": ("/", 1), "cache": ("/", 1)}, machines=machines)
    assert len(decisions.refusals(full, LAYOUT, ["192.0.2.53"], local=True)) == 1
    full = replace(full, has_mirror=True, has_model=True, bases=frozenset({"trixie"}))
    assert decisions.refusals(full, LAYOUT, ["192.0.2.53"], local=True) == []


@pytest.mark.parametrize(
    ("data", "part"),
    [
        ({"sandbox_subnet": "198.18.80.0/24"}, "other settings (sandbox_subnet, gq-w1, gq-w2, gq-head)"),
        ({"sandbox_machines": [{"name": "w1", "octet": 11, "suite": "bookworm"}]}, "(gq-w1, gq-w2, gq-head)"),
        ({"sandbox_prefix": "other"}, "holds the sandbox 'gq' and not 'other'"),
    ],
)
def test_a_sandbox_is_not_run_over_with_other_settings(data: dict[str, Any], part: str) -> None:
    seen = replace(NOTHING, state_entries=frozenset({"machines.json"}), description=description_text(LAYOUT))
    (said,) = decisions.refusals(seen, lay_out(Settings(**data)), ["192.0.2.53"], local=True)
    assert part in said


def test_a_machine_may_be_added() -> None:
    more = [{"name": name, "octet": octet} for name, octet in (("w1", 11), ("w2", 12), ("head", 10), ("w3", 13))]
    seen = replace(NOTHING, state_entries=frozenset({"machines.json"}), description=description_text(LAYOUT))
    assert decisions.refusals(seen, lay_out(Settings(sandbox_machines=more)), ["192.0.2.53"], local=True) == []


def test_a_key_without_its_other_half_is_made_again() -> None:
    whole = {f"{machine.name}_ed25519": "" for machine in LAYOUT.machines}
    whole |= {f"{name}.pub": "ssh-ed25519 AAAA comment" for name in whole} | {"id_ed25519": ""}
    seen = replace(NOTHING, ssh=whole)
    assert decisions.missing_keys(seen, LAYOUT) == [LAYOUT.key]
    assert decisions.known_hosts(seen, LAYOUT).splitlines()[0] == "198.18.77.11,gq-w1 ssh-ed25519 AAAA"


def test_the_table_is_known_by_its_rules() -> None:
    wanted = render("table.nft.j2", layout=LAYOUT)
    shown = tuple(line.strip() for line in wanted.splitlines())
    assert decisions.table_is_complete(replace(NOTHING, table=shown), wanted)
    assert not decisions.table_is_complete(replace(NOTHING, table=shown[:3] + shown[4:]), wanted)


def test_the_command_line_is_what_a_process_is_known_by() -> None:
    command = nspawn_command(LAYOUT, W1)
    assert "--machine=gq-w1" in command
    assert "--directory=/var/lib/gpuquilt-sandbox/machines/gq-w1/root" in command
    assert "--bind-ro=/var/cache/gpuquilt-sandbox/inputs:/srv/inputs" in command
    assert "--bind=/var/lib/gpuquilt-sandbox/machines/gq-w1/docker:/var/lib/docker" in command
    assert "'--system-call-filter=add_key keyctl bpf'" in command


@pytest.mark.parametrize(
    ("data", "part"),
    [
        ({"sandbox_subnet": "198.18.0.0/16"}, "not a /24"),
        ({"sandbox_subnet": "198.18.77.1/24"}, "sandbox_subnet"),
        ({"sandbox_prefix": "quilted"}, "vb-quilted-head has 15 characters"),
        ({"sandbox_prefix": "gq-"}, "sandbox_prefix"),
        ({"sandbox_state": "/"}, "sandbox_state"),
        ({"sandbox_state": "/var"}, "sandbox_state"),
        ({"sandbox_state": "/var/../etc"}, "sandbox_state"),
        ({"sandbox_state": "/var/lib/two words"}, "sandbox_state"),
        ({"sandbox_cache": "/var/lib/gpuquilt-sandbox"}, "the same folder"),
        ({"sandbox_machines": [{"name": "a", "octet": 9}, {"name": "b", "octet": 9}]}, "the same octet twice"),
        ({"sandbox_machines": [{"name": "a", "octet": 1}]}, "sandbox_machines"),
        ({"sandbox_machines": [{"name": "a", "octet": 9, "suite": "sid"}]}, "sandbox_machines"),
        ({"sandbox_machine": []}, "did you mean 'sandbox_machines'"),
    ],
)
def test_wrong_settings_are_refused(data: dict[str, Any], part: str) -> None:
    if part == "vb-quilted-head has 15 characters":
        Settings(**data)
        data, part = {"sandbox_prefix": "quilting"}, "vb-quilting-head has 16 characters"
    settings, problems = read_settings([Settings], [HostData("@local", frozenset(), data)])
    assert not settings
    assert part in problems[0]


def test_the_settings_are_frozen() -> None:
    with pytest.raises(ValidationError):
        Settings().sandbox_prefix = "other"  # type: ignore[misc]


ANSWER = """\
@user
0
@release
debian
13
trixie
@missing
mmdebstrap
@routes
Iface	Destination	Gateway 	Flags	RefCnt	Use	Metric	Mask		MTU	Window	IRTT
eth0	00000000	010200C0	0003	0	0	0	00000000	0	0	0
eth0	000200C0	00000000	0001	0	0	0	00FFFFFF	0	0	0
gq-br0	004D12C6	00000000	0001	0	0	0	00FFFFFF	0	0	0
@nameservers
# made by something
nameserver 127.0.0.53
nameserver ::1
nameserver 192.0.2.53
@kernel
net.ipv4.ip_forward 0
@free
state 80000 /
cache 9000 /var/cache
@bases
trixie
trixie.partial
@inputs
model
lacks 0c1e57098bba43ac29e6e3b677cdceebdd22334f^{tree}
@ssh id_ed25519
@ssh id_ed25519.pub
ssh-ed25519 AAAA comment
@bridges
docker0
gq-br0
@tables
table ip gpuquilt_sandbox_gq
table ip gpuquilt_sandbox_gqt
table ip nat
@running
100 gq-w1 /var/lib/gpuquilt-sandbox/machines/gq-w1/root
101 gq-w2 /srv/other/machines/gq-w2/root
102 gqt-w1 /var/lib/gpuquilt-sandbox/machines/gqt-w1/root
103 gq-w2
@folders
gq-w1
gq-old
@cables
vb-gq-w1
vb-gq-old
vb-gq-stranger
@mounts
overlay /var/lib/gpuquilt-sandbox/machines/gq-w1/root overlay rw,lowerdir=/var/cache/gpuquilt-sandbox/base/trixie,x 0 0
overlay /srv/other/machines/gqt-w1/root overlay rw,lowerdir=/var/cache/gpuquilt-sandbox/base/trixie,x 0 0
/dev/sda1 / ext4 rw 0 0
@groups
/sys/fs/cgroup/unified/gq-w1
/sys/fs/cgroup/unified/gq-stranger
@machines
gq-w1 cable plugged
gq-w2 cable
"""


def test_an_answer_is_read() -> None:
    seen = parse(ANSWER.splitlines(), LAYOUT)
    assert seen.user == 0
    assert seen.release == ("debian", "13", "trixie")
    assert not seen.booted_with_systemd
    assert seen.missing_packages == ("mmdebstrap",)
    assert seen.routes == (Route("eth0", IPv4Network("192.0.2.0/24")), Route("gq-br0", IPv4Network("198.18.77.0/24")))
    assert seen.nameservers == ("192.0.2.53",)
    assert seen.free == {"state": ("/", 80000), "cache": ("/var/cache", 9000)}
    assert seen.has_model
    assert not seen.has_mirror
    assert set(seen.ssh) == {"id_ed25519", "id_ed25519.pub"}
    assert seen.other_sandboxes == ("gpuquilt_sandbox_gqt",)
    assert seen.other_bridges == ("docker0",)
    assert seen.machines == {
        "gq-w1": SeenMachine("gq-w1", mounted=True, cable=True, plugged=True),
        "gq-w2": SeenMachine("gq-w2", cable=True),
    }


def test_only_what_is_ours_is_taken_for_ours() -> None:
    """By name and by folder: another sandbox, and things that only sound like one, stay as they are."""
    seen = parse(ANSWER.splitlines(), LAYOUT)
    assert [running.pid for running in seen.running] == [100]
    assert seen.cables == ("vb-gq-w1", "vb-gq-old")
    assert seen.groups == ("/sys/fs/cgroup/unified/gq-w1",)
    assert seen.mounts == ("/var/lib/gpuquilt-sandbox/machines/gq-w1/root",)
    assert seen.cache_users == ("/srv/other/machines/gqt-w1/root",)


def test_no_answer_is_nothing_seen() -> None:
    seen = parse([], LAYOUT)
    assert not seen.running
    assert not seen.has_mirror
    assert decisions.refusals(seen, LAYOUT, [], local=True)


def test_the_question_names_every_package() -> None:
    script = look(LAYOUT)
    assert all(f"{tool}={package}" in script for tool, package in PACKAGES.items())


def test_every_layout_has_names_of_its_own() -> None:
    other = lay_out(Settings(sandbox_prefix="gqt", sandbox_subnet="198.18.78.0/24", sandbox_state="/var/lib/other"))

    def names(layout: Layout) -> set[str]:
        own = {layout.bridge, layout.table, layout.key, layout.known_hosts, str(layout.gateway)}
        return own | {name for machine in layout.machines for name in (machine.name, machine.interface, str(machine.address))}

    assert not names(LAYOUT) & names(other)
