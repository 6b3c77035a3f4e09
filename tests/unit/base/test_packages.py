"""Packages that are missing are installed, and the package lists refreshed only then."""

import subprocess

from pyinfra.api import FunctionCommand
from pyinfra.context import ctx_host, ctx_state
from pyinfra_testing.util import FakeState, create_host  # type: ignore[import-untyped]

from roles.base.apt import Record
from roles.base.facts import MissingPackagesFact
from roles.base.operations import chosen_packages


def what_is_done(missing: list[str], states: dict[str, str], moved: bool = False) -> list[list[str]]:
    """The packages that are given to apt, for each time that it is called."""
    state = FakeState()
    facts = {"MissingPackagesFact": {"names=['curl', 'zstd']": missing}, "RecordFact": {"record=tools": Record(True, states)}}
    host = create_host(state, facts={f"facts.{name}": answers for name, answers in facts.items()})
    with ctx_state.use(state), ctx_host.use(host):
        commands = list(chosen_packages._inner(record="tools", packages=["curl", "zstd"], moved=moved))
    assert all(isinstance(command, FunctionCommand) for command in commands)
    return [command.args[1] for command in commands]


def test_only_what_is_missing_is_installed() -> None:
    assert what_is_done(["zstd"], {"curl": "installed"}) == [["zstd"]]
    assert what_is_done([], {"curl": "installed"}) == []


def test_what_dpkg_was_interrupted_in_is_finished_though_nothing_is_missing() -> None:
    assert what_is_done([], {"libzstd1": "half-configured"}) == [[]]
    assert what_is_done([], {"initramfs-tools": "triggers-pending"}) == [[]]


def test_what_is_to_move_is_given_to_apt_though_it_is_there() -> None:
    assert what_is_done([], {}, moved=True) == [["curl", "zstd"]]


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
