"""The RPC port of a worker answers its heads alone."""

from __future__ import annotations

from tests.verify import reading
from tests.verify.cluster import Service

TABLE = "inet gpuquilt"


def test_firewall_lets_in_the_heads_alone(worker: Service) -> None:
    # A table that is not there is an empty answer, not a failure of the command.
    seen = reading.guard(worker.subject.ask(f"nft -j list table {TABLE} 2>/dev/null || true"))
    planned = frozenset(map(str, worker.subject.plan.clients))
    assert seen.drops and worker.subject.plan.rpc_port in seen.ports, (
        f"{worker.subject}: no nftables table `{TABLE}` guards port {worker.subject.plan.rpc_port}; run deploys/cluster.py."
    )
    assert seen.addresses == planned, (
        f"{worker.subject}: the nftables table `{TABLE}` lets in {', '.join(sorted(seen.addresses)) or 'nobody'},"
        f" and the heads are {', '.join(sorted(planned)) or 'nobody'}; run deploys/cluster.py."
    )
