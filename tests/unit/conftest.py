"""What unit tests share."""

from unittest.mock import patch

import pytest
from hypothesis import settings

# pyinfra's command line patches the standard library for gevent as soon as it is imported, which pyinfra-testing does.
# In this process that would outlive the import: starting a terminal (pexpect) would hang, here and in the sandbox's tests.
with patch("gevent.monkey.patch_all"):
    import pyinfra_cli  # type: ignore[import-untyped]  # noqa: F401

# On a busy computer a case takes what it takes.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")


@pytest.fixture(autouse=True)
def _fake_hosts_answer_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYINFRA_FAKE_DELAY", "0")
    monkeypatch.setenv("PYINFRA_FAKE_DELAY_JITTER", "0")
