"""What config.py decides for every run."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import paramiko
import pytest

from roles.base.connection import UNANSWERED, QuickTransport
from tests.conftest import run

CONFIG = Path(__file__).resolve().parents[3] / "config.py"


@pytest.fixture
def connected() -> Iterator[socket.socket]:
    """One end of a real TCP connection."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        peer, _ = server.accept()
        with peer:
            yield client


def test_an_ssh_connection_sends_small_packets_at_once(connected: socket.socket) -> None:
    assert not connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    transport = QuickTransport(connected)
    try:
        assert connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    finally:
        transport.close()


def test_an_ssh_connection_notices_a_host_that_is_gone(connected: socket.socket) -> None:
    transport = QuickTransport(connected)
    try:
        assert connected.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == UNANSWERED * 1000
    finally:
        transport.close()


def test_a_connection_through_another_program_is_left_as_it_is() -> None:
    """A jump host or a ProxyCommand gives paramiko something that is no TCP socket."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        channel = _Channel(ours)
        transport = QuickTransport(channel)
        transport.close()


class _Channel:
    """Looks to paramiko like a socket and is none."""

    def __init__(self, inner: socket.socket) -> None:
        self._inner = inner

    def settimeout(self, seconds: float) -> None:
        self._inner.settimeout(seconds)

    def close(self) -> None:
        self._inner.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working directory with our config.py, where pyinfra is run against nothing but itself."""
    (tmp_path / "config.py").write_text(CONFIG.read_text())
    (tmp_path / "show.py").write_text(
        "import paramiko.client\n"
        "from pyinfra import state\n"
        "print('transport', paramiko.client.Transport.__name__)\n"
        "print('fail_percent', state.config.FAIL_PERCENT)\n"
    )
    return tmp_path


def pyinfra(folder: Path) -> str:
    ended = run(sys.executable, "-m", "pyinfra", "-y", "@fake", "show.py", cwd=folder, PYINFRA_FAKE_DELAY="0")
    return f"{ended.status}\n{ended.text}"


def test_every_run_connects_quickly_and_stops_at_the_first_failure(folder: Path) -> None:
    text = pyinfra(folder)
    assert text.startswith("0\n")
    assert "transport QuickTransport" in text
    assert "fail_percent 0" in text


def test_another_version_of_pyinfra_is_refused(folder: Path) -> None:
    config = folder / "config.py"
    config.write_text(config.read_text().replace("~=3.10.0", "~=3.9.0"))
    text = pyinfra(folder)
    assert not text.startswith("0\n")
    assert "~=3.9.0" in text
    assert "transport" not in text


def test_our_transport_is_one_of_paramikos() -> None:
    assert issubclass(QuickTransport, paramiko.Transport)
