"""What unit tests share."""

from unittest.mock import patch

# pyinfra's command line patches the standard library for gevent as soon as it is imported, which pyinfra-testing does.
# In this process that would outlive the import: starting a terminal (pexpect) would hang, here and in the sandbox's tests.
with patch("gevent.monkey.patch_all"):
    import pyinfra_cli  # type: ignore[import-untyped]  # noqa: F401
