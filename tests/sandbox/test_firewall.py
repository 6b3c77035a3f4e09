"""The RPC port answers the head alone, and what the user has in nftables stays as it is."""

from __future__ import annotations

import re

from tests.sandbox.conftest import Machine, Sandbox

USERS_OWN = """table ip users_own {
	chain input {
		type filter hook input priority filter; policy accept;
		tcp dport 9999 counter packets 0 bytes 0 drop comment "mine"
	}
}
"""


def reaches(machine: Machine, address: str, port: int) -> bool:
    """Whether a TCP connection can be made; it is closed at once."""
    return machine.ssh(f"timeout 3 bash -c '</dev/tcp/{address}/{port}'").status == 0


def guarded_ports(machine: Machine) -> set[int]:
    """The ports of the live table."""
    (ports,) = re.findall(r"tcp dport != (.*) accept", machine.out("nft list table inet gpuquilt"))
    return set(map(int, re.findall(r"[0-9]+", ports)))


def test_the_rpc_port_answers_the_head_alone(sandbox: Sandbox) -> None:
    """The port is asked while no head is connected: a worker serves one client at a time."""
    sandbox.head.out("systemctl stop llama-server")
    try:
        assert reaches(sandbox.head, sandbox.w1.address, 50052)
        assert not reaches(sandbox.w2, sandbox.w1.address, 50052)
        assert reaches(sandbox.w2, sandbox.w1.address, 22)
    finally:
        ended = sandbox.deploy()
    assert ended.status == 0, ended.text
    assert "Paris" in sandbox.ask()


def test_the_users_own_table_stays_byte_for_byte(sandbox: Sandbox) -> None:
    sandbox.w1.out(f"nft -f - <<'E'\n{USERS_OWN}E")
    before = sandbox.w1.out("nft list table ip users_own")
    try:
        # Our own table is gone, as after `flush ruleset` of somebody else's: the next run puts it back, and only that.
        sandbox.w1.out("nft delete table inet gpuquilt")
        assert sandbox.deploy().status == 0
        assert "tcp dport" in sandbox.w1.out("nft list table inet gpuquilt")
        assert sandbox.w1.out("nft list table ip users_own") == before
    finally:
        sandbox.w1.out("nft delete table ip users_own")


def test_nftables_own_service_does_not_open_the_port(sandbox: Sandbox) -> None:
    """Debian's nftables.service flushes the whole ruleset when it starts, when it is reloaded, and when it stops."""
    try:
        for verb in ("restart", "reload", "stop"):
            sandbox.w1.out(f"systemctl {verb} nftables")
            assert guarded_ports(sandbox.w1) == {50052}, verb
    finally:
        # Nothing where the guard is there already.
        sandbox.w1.out("systemctl stop nftables; nft list table inet gpuquilt >/dev/null || systemctl restart gpuquilt-firewall")


def test_the_port_that_serves_stays_guarded_when_the_switch_to_another_fails(sandbox: Sandbox) -> None:
    """The head with the new port wants an API key that nobody has: it runs, and it answers nobody."""
    workers = (sandbox.w1, sandbox.w2)
    key = 'llama_server_environment={"LLAMA_API_KEY": "nobody has it"}'
    try:
        ended = sandbox.deploy("--data", "rpc_port=50053", "--data", key)
        assert ended.status != 0
        assert "Paris" in sandbox.ask()
        assert [guarded_ports(worker) for worker in workers] == [{50052, 50053}] * 2
        # What is loaded is what a boot would load.
        assert [worker.out("grep -c 'dport != { 50052, 50053 }' /etc/gpuquilt/firewall.nft") for worker in workers] == ["1"] * 2
        assert "Every host is back on the release before, which answers." in ended.text
    finally:
        ended = sandbox.deploy()
    assert ended.status == 0, ended.text
    assert [guarded_ports(worker) for worker in workers] == [{50052}] * 2
    assert "Paris" in sandbox.ask()
