"""What is put back when a sandbox goes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyinfra.context import ctx_host, ctx_state
from pyinfra_testing.util import FakeState, create_host  # type: ignore[import-untyped]

from roles.sandbox import operations
from roles.sandbox.layout import lay_out
from roles.sandbox.seen import Seen
from roles.sandbox.settings import Settings

LAYOUT = lay_out(Settings())
LAST = Seen(remembered={"net.ipv4.ip_forward": 0})


def put_back(seen: Seen, monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], list[str]]:
    """The commands, and the sentences that are shown, of a run in its second phase."""
    said: list[str] = []
    monkeypatch.setattr(operations, "_look", lambda layout: seen)
    monkeypatch.setattr(operations, "say", lambda host, sentence: said.append(sentence))
    state = FakeState()
    state.is_executing = True
    with ctx_state.use(state), ctx_host.use(create_host(state)):
        return list(operations.kernel_settings_back._inner(layout=LAYOUT)), said


def test_the_last_sandbox_puts_the_kernel_settings_back(monkeypatch: pytest.MonkeyPatch) -> None:
    commands, said = put_back(LAST, monkeypatch)
    assert commands[0].startswith("echo 0 >/proc/sys/net/ipv4/ip_forward && rm ")
    assert not said


def test_one_of_several_sandboxes_leaves_them_to_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    assert put_back(replace(LAST, other_sandboxes=("gpuquilt_sandbox_gqt",)), monkeypatch) == ([], [])


def test_where_another_bridge_may_need_them_they_stay_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    commands, (sentence,) = put_back(replace(LAST, other_bridges=("docker0",)), monkeypatch)
    assert not commands
    assert "stay as they are, because docker0 may need them" in sentence
    assert "net.ipv4.ip_forward = 0" in sentence


def test_where_nothing_was_changed_nothing_is_said_of_bridges(monkeypatch: pytest.MonkeyPatch) -> None:
    assert put_back(Seen(other_bridges=("docker0",)), monkeypatch) == ([], [])
