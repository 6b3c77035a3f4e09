"""The RPC port answers the head alone, and what the user has in nftables stays as it is."""

from __future__ import annotations

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
    """Debian's nftables.service flushes the whole ruleset when it starts."""
    sandbox.w1.out("systemctl restart nftables")
    try:
        assert "tcp dport" in sandbox.w1.out("nft list table inet gpuquilt")
    finally:
        sandbox.w1.out("systemctl stop nftables; nft list table inet gpuquilt >/dev/null || systemctl restart gpuquilt-firewall")
