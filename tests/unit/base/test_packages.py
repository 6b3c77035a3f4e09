"""Packages that are missing are installed, and the package lists refreshed only then."""

import subprocess

from pyinfra.api import FunctionCommand
from pyinfra.context import ctx_host, ctx_state
from pyinfra_testing.util import FakeState, create_host  # type: ignore[import-untyped]

from roles.base.facts import MissingPackagesFact
from roles.base.operations import packages


def test_only_what_is_missing_is_installed() -> None:
    state = FakeState()
    host = create_host(state, facts={"facts.MissingPackagesFact": {"names=['curl', 'zstd']": ["zstd"]}})
    with ctx_state.use(state), ctx_host.use(host):
        (command,) = packages._inner(names=["curl", "zstd"])
    assert isinstance(command, FunctionCommand)
    unit, script, _ = command.args
    assert unit == "gpuquilt-packages"
    lines = script.splitlines()
    assert lines[0] == "set -e"
    assert lines[1] == "apt-get update"
    assert lines[2].endswith("apt-get install -y --no-install-recommends zstd")


def test_the_command_is_understood_by_this_computers_dpkg() -> None:
    fact = MissingPackagesFact()
    names = ["no-such-package-as-this", "bash", "dpkg"]
    command = fact.command(names)
    output = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True).stdout.splitlines()
    assert fact.process(output) == ["no-such-package-as-this"]


def test_a_host_that_says_nothing_lacks_all_of_them() -> None:
    fact = MissingPackagesFact()
    fact.command(["bash"])
    assert fact.default() == ["bash"]
