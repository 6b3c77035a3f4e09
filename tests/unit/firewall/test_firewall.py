"""The rules of a worker, what is read of a host that has them, and what is done there."""

import shlex
import subprocess
from hashlib import sha256
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
from pyinfra.context import ctx_host, ctx_state
from pyinfra_testing.util import FakeState, create_host  # type: ignore[import-untyped]

from roles.cluster.options import Profile
from roles.cluster.plan import HostPlan
from roles.firewall import operations
from roles.firewall.guard import COMMAND, Guard, parse
from roles.firewall.rules import DROP_IN, RULES, UNIT, UNIT_FILE, Access, access, rules, units
from tests.unit.cluster.examples import CPU

OLD_HEAD, HEAD = "198.18.77.10", "198.18.77.20"

EXPECTED = """\
# Written by gpuquilt, from templates/nftables/firewall.nft.j2. Loaded by gpuquilt-firewall.service.
table inet gpuquilt
delete table inet gpuquilt
table inet gpuquilt {
	set heads {
		type ipv4_addr
		elements = { 198.18.77.10, 198.18.77.20 }
	}

	# Before Docker's address translation (-100), so that a published port is guarded like one of the host's own.
	chain rpc {
		type filter hook prerouting priority -150; policy accept;
		iifname "lo" accept
		# What is only routed through, e.g. a container that reaches another worker.
		fib daddr type != local accept
		tcp dport != 50052 accept
		# The port may be the ephemeral one of a connection that this host opened.
		ct direction reply accept
		ip saddr @heads accept
		counter drop
	}
}
"""


def plan(*clients: str, port: int = 50052) -> HostPlan:
    return HostPlan(
        name="w1",
        address=IPv4Address("198.18.77.11"),
        worker=True,
        head=False,
        rpc_port=port,
        http_port=8080,
        commit="0" * 40,
        compute=CPU,
        profile=Profile("debian13", "v3", "cpu", ("rpc-server",), {}),
        release="x",
        builder="w1",
        clients=tuple(map(IPv4Address, clients)),
    )


def allowed(ports: set[int], *heads: str) -> Access:
    return Access(frozenset(ports), frozenset(map(IPv4Address, heads)))


SEVERAL = [
    allowed({50052}),
    allowed({50052}, HEAD),
    allowed({50052}, OLD_HEAD, HEAD),
    allowed({50053, 50052}),
    allowed({50053, 50052, 50054}, OLD_HEAD, HEAD),
]


def test_the_heads_are_let_in_whatever_their_order() -> None:
    assert rules(access(plan(HEAD, OLD_HEAD))) == EXPECTED
    assert rules(access(plan(OLD_HEAD, HEAD))) == EXPECTED


def test_several_ports_are_one_set() -> None:
    found = rules(allowed({50053, 50052}, OLD_HEAD, HEAD))
    assert found == EXPECTED.replace("!= 50052", "!= { 50052, 50053 }")


@pytest.mark.parametrize("wanted", SEVERAL)
def test_nftables_takes_the_rules(wanted: Access, tmp_path: Path) -> None:
    path = tmp_path / "firewall.nft"
    path.write_text(rules(wanted))
    # An empty network namespace: the host's own tables stay out of it.
    found = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--net", "nft", "-c", "-f", path], capture_output=True, text=True, check=False
    )
    assert (found.returncode, found.stderr) == (0, "")


@pytest.mark.parametrize("wanted", SEVERAL)
def test_a_host_shows_what_its_rules_guard(wanted: Access, tmp_path: Path) -> None:
    assert shown(tmp_path, rules(wanted)) == wanted


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "\x00\xff",
        EXPECTED.replace("50052", "65536"),
        EXPECTED.replace("50052", "5005.2"),
        EXPECTED.replace(HEAD, "198.18.77.256"),
        EXPECTED.replace("tcp dport", "# tcp dport"),
    ],
)
def test_rules_that_are_not_there_or_damaged_guard_nothing(text: str | None, tmp_path: Path) -> None:
    assert shown(tmp_path, text) == Access()


def shown(folder: Path, text: str | None) -> Access:
    """What the command shows of a host whose rules are this text."""
    path = folder / "firewall.nft"
    if text is not None:
        path.write_text(text, encoding="latin-1")
    ended = subprocess.run(["sh", "-c", COMMAND.replace(RULES, str(path))], capture_output=True, text=True, check=True)
    return parse(ended.stdout.splitlines()).access


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    path = tmp_path / UNIT
    path.write_text(units()[UNIT_FILE])
    found = subprocess.run(["systemd-analyze", "verify", "--man=no", path], capture_output=True, text=True, check=False)
    assert not [line for line in found.stderr.splitlines() if UNIT in line]


def test_a_worker_that_is_guarded() -> None:
    lines = [
        f"{RULES} " + "a" * 64,
        f"{UNIT_FILE} " + "b" * 64,
        f"{DROP_IN} " + "c" * 64,
        "\t\telements = { 198.18.77.10, 198.18.77.20 }",
        "\t\ttcp dport != 50052 accept",
        "UnitFileState=enabled",
        "port served",
        "table loaded",
        "table same",
    ]
    files = {RULES: "a" * 64, UNIT_FILE: "b" * 64, DROP_IN: "c" * 64}
    found = allowed({50052}, OLD_HEAD, HEAD)
    assert parse(lines) == Guard(files, found, enabled=True, loaded=True, same=True, served=True)


def test_a_unit_that_systemd_has_not_read() -> None:
    assert parse(["reload owed"]) == Guard(reload_owed=True)


def test_a_host_that_has_nothing() -> None:
    assert parse(["UnitFileState="]) == Guard()
    assert parse([]) == Guard()


def guarded(by: Access) -> Guard:
    """A worker whose guard is in place and lets in what `by` says."""
    texts = {RULES: rules(by), **units()}
    files = {path: sha256(text.encode()).hexdigest() for path, text in texts.items()}
    return Guard(files, by, enabled=True, loaded=True, same=True, served=True)


def commands(operation: Any, seen: Guard, **arguments: Any) -> list[str]:
    """What an operation yields on a host that shows this."""
    state = FakeState()
    host = create_host(state, facts={"facts.GuardFact": seen})
    with ctx_state.use(state), ctx_host.use(host):
        return [str(command) for command in operation._inner(**arguments)]


def loads(yielded: list[str], wanted: Access) -> bool:
    """Whether the commands put exactly these rules in place and load them, and do nothing else."""
    write, load = yielded
    return shlex.quote(rules(wanted)) in write and load == f"systemctl reload-or-restart {UNIT}"


def test_what_is_guarded_as_planned_stays_untouched() -> None:
    wanted = plan(HEAD)
    seen = guarded(access(wanted))
    assert commands(operations.guard_both, seen, plan=wanted) == []
    assert commands(operations.guard, seen, plan=wanted) == []


def test_until_the_switch_the_old_port_and_the_old_head_are_guarded_with_the_new() -> None:
    both = allowed({50052, 50053}, OLD_HEAD, HEAD)
    wanted = plan(HEAD, port=50053)
    assert loads(commands(operations.guard_both, guarded(allowed({50052}, OLD_HEAD)), plan=wanted), both)
    # The run after a switch that failed.
    assert commands(operations.guard_both, guarded(both), plan=wanted) == []
    assert commands(operations.guard_both, guarded(both), plan=plan(OLD_HEAD)) == []


def test_after_the_switch_what_the_plan_wants_is_guarded_alone() -> None:
    wanted = plan(HEAD, port=50053)
    both = guarded(allowed({50052, 50053}, OLD_HEAD, HEAD))
    assert loads(commands(operations.guard, both, plan=wanted), access(wanted))


def test_a_host_that_was_no_worker_is_guarded_before_the_switch() -> None:
    wanted = plan(HEAD)
    for operation in (operations.guard_both, operations.guard):
        yielded = commands(operation, Guard(), plan=wanted)
        assert shlex.quote(rules(access(wanted))) in yielded[0]
        assert yielded[-1] == f"systemctl reload-or-restart {UNIT}"


def test_the_guard_is_taken_away_once_nothing_serves() -> None:
    seen = guarded(allowed({50052}, HEAD))
    assert commands(operations.unguard, seen) == []
    idle = Guard(seen.files, seen.access, enabled=True, loaded=True, same=True)
    assert commands(operations.unguard, idle)[-1] == "nft delete table inet gpuquilt"
    assert commands(operations.unguard, Guard()) == []
