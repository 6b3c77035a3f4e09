"""The rules of a worker, and what is read of a host that has them."""

import subprocess
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from roles.cluster.plan import HostPlan, Profile
from roles.firewall.guard import Guard, parse
from roles.firewall.rules import DROP_IN, RULES, UNIT, UNIT_FILE, rules, units

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


def plan(*clients: str) -> HostPlan:
    return HostPlan(
        name="w1",
        address=IPv4Address("198.18.77.11"),
        worker=True,
        head=False,
        rpc_port=50052,
        http_port=8080,
        commit="0" * 40,
        profile=Profile("debian13", "v3", "cpu", ("rpc-server",), {}),
        release="x",
        builder="w1",
        clients=tuple(map(IPv4Address, clients)),
    )


def test_the_heads_are_let_in_whatever_their_order() -> None:
    assert rules(plan("198.18.77.20", "198.18.77.10")) == EXPECTED
    assert rules(plan("198.18.77.10", "198.18.77.20")) == EXPECTED


@pytest.mark.parametrize("clients", [(), ("198.18.77.10",), ("198.18.77.10", "198.18.77.20")])
def test_nftables_takes_the_rules(clients: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "firewall.nft"
    path.write_text(rules(plan(*clients)))
    # An empty network namespace: the host's own tables stay out of it.
    found = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--net", "nft", "-c", "-f", path], capture_output=True, text=True, check=False
    )
    assert (found.returncode, found.stderr) == (0, "")


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
        "UnitFileState=enabled",
        "port served",
        "table loaded",
        "table same",
    ]
    files = {RULES: "a" * 64, UNIT_FILE: "b" * 64, DROP_IN: "c" * 64}
    assert parse(lines) == Guard(files, enabled=True, loaded=True, same=True, served=True)


def test_a_unit_that_systemd_has_not_read() -> None:
    assert parse(["reload owed"]) == Guard(reload_owed=True)


def test_a_host_that_has_nothing() -> None:
    assert parse(["UnitFileState="]) == Guard()
    assert parse([]) == Guard()
