"""Verification passes on the cluster, and turns red for every fault that it is for, planted one at a time."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests

from tests.conftest import run
from tests.sandbox.conftest import INVENTORY, NEW, OLD, Machine, Sandbox
from tests.sandbox.verification import Verification

RPC_SERVER = "rpc-server.service"
LLAMA_SERVER = "llama-server.service"

NEEDS_A_RUNNING_WORKER = (
    "test_worker_serves_the_planned_backend",
    "test_worker_serves_its_head_alone",
    "test_nobody_waits_for_the_worker",
    "test_process_runs_where_it_should",
    "test_process_is_the_installed_release",
    "test_process_uses_the_installed_libraries",
    "test_service_listens_where_it_should",
)
NEEDS_EVERY_CONNECTION = (
    "test_head_is_connected_to_every_planned_worker",
    "test_head_answers_the_fixed_prompt",
    "test_running_head_was_built_from_the_pinned_commit",
)


@pytest.fixture
def verify(tmp_path: Path) -> Verification:
    return Verification(INVENTORY, tmp_path / "report.xml")


@pytest.fixture(scope="module", autouse=True)
def cluster_runs_new(sandbox: Sandbox) -> None:
    """Both releases are there, and the newer one runs."""
    if sandbox.w1.ssh(f"ls -d /opt/llama.cpp/releases/{OLD[:12]}-*").status != 0:
        sandbox.at(OLD)
    sandbox.at(NEW)


def of(machine: Machine, *tests: str) -> set[str]:
    """These tests, of a service on a machine."""
    unit = LLAMA_SERVER if machine.name.endswith("-head") else RPC_SERVER
    return {f"{test}[{machine.name}-{unit}]" for test in tests}


def restart(sandbox: Sandbox, *workers: Machine) -> None:
    """Restart workers and then the head, and wait for an answer."""
    for worker in workers:
        worker.out(f"systemctl daemon-reload; systemctl restart {RPC_SERVER}")
    sandbox.head.out(f"systemctl daemon-reload; systemctl restart {LLAMA_SERVER}")
    deadline = time.monotonic() + 60
    while True:
        try:
            sandbox.ask()
            return
        except requests.RequestException:
            assert time.monotonic() < deadline, sandbox.head.out(f"journalctl -u {LLAMA_SERVER} -n 20 --no-pager")
            time.sleep(0.2)


@contextmanager
def command_line(machine: Machine, unit: str, change: str) -> Iterator[None]:
    """A drop-in by which the unit starts with another command line.

    :param change: what sed makes of the line
    """
    folder = f"/run/systemd/system/{unit}.d"
    line = f"grep ^ExecStart= /etc/systemd/system/{unit} | sed '{change}'"
    machine.out(f"mkdir -p {folder}; {{ echo [Service]; echo ExecStart=; {line}; }} >{folder}/planted.conf")
    try:
        yield
    finally:
        machine.out(f"rm -r {folder}; systemctl daemon-reload")


def test_verification_passes(verify: Verification) -> None:
    verdict = verify()
    assert verdict.failures == {}
    assert verdict.passed > 30


def test_worker_that_is_stopped(sandbox: Sandbox, verify: Verification) -> None:
    sandbox.w1.out(f"systemctl stop {RPC_SERVER}")
    try:
        failures = verify().failures
    finally:
        restart(sandbox, sandbox.w1)
    stopped = of(sandbox.w1, "test_service_runs", *NEEDS_A_RUNNING_WORKER)
    assert failures.keys() == stopped | of(sandbox.head, *NEEDS_EVERY_CONNECTION)
    assert all(sandbox.w1.name in failures[test] for test in stopped)
    assert all(sandbox.w1.address in failures[test] for test in of(sandbox.head, *NEEDS_EVERY_CONNECTION))


def test_worker_that_runs_the_older_release(sandbox: Sandbox, verify: Verification) -> None:
    """Its process is the older release's, as after an upgrade that forgot to restart it."""
    older = sandbox.w1.out(f"ls /opt/llama.cpp/releases/{OLD[:12]}-*/bin/*rpc-server")
    change = f"s|/opt/llama.cpp/current/bin/[^ ]*|{older}|"
    with command_line(sandbox.w1, RPC_SERVER, change):
        sandbox.w1.out(f"systemctl daemon-reload; systemctl restart {RPC_SERVER}")
        failures = verify().failures
    restart(sandbox, sandbox.w1)
    wrong = of(sandbox.w1, "test_process_is_the_installed_release", "test_process_uses_the_installed_libraries")
    lost = of(sandbox.w1, "test_worker_serves_its_head_alone")
    assert failures.keys() == wrong | lost | of(sandbox.head, *NEEDS_EVERY_CONNECTION)
    assert all(sandbox.w1.name in failures[test] and OLD[:12] in failures[test] for test in wrong)


def test_worker_whose_file_was_exchanged_under_it(sandbox: Sandbox, verify: Verification) -> None:
    program = sandbox.w1.running(RPC_SERVER)
    sandbox.w1.out(f"cp -a {program} {program}.new && mv {program}.new {program}")
    try:
        failures = verify().failures
    finally:
        restart(sandbox, sandbox.w1)
    assert failures.keys() == of(sandbox.w1, "test_process_is_the_installed_release")
    assert sandbox.w1.name in (text := "".join(failures.values()))
    assert "(deleted)" in text


def test_worker_that_listens_on_every_network(sandbox: Sandbox, verify: Verification) -> None:
    with command_line(sandbox.w1, RPC_SERVER, f"s/{sandbox.w1.address}/0.0.0.0/"):
        restart(sandbox, sandbox.w1)
        failures = verify().failures
    restart(sandbox, sandbox.w1)
    assert failures.keys() == of(sandbox.w1, "test_service_listens_where_it_should") | {
        f"test_nothing_else_of_ours_listens[{sandbox.w1.name}]"
    }
    assert all(sandbox.w1.name in text and "0.0.0.0:50052" in text for text in failures.values())


def test_head_that_was_started_with_one_worker_less(sandbox: Sandbox, verify: Verification) -> None:
    with command_line(sandbox.head, LLAMA_SERVER, f"s/,{sandbox.w2.address}:50052//"):
        restart(sandbox)
        failures = verify().failures
    restart(sandbox)
    wrong = of(sandbox.head, "test_head_was_started_with_every_planned_worker", "test_head_is_connected_to_every_planned_worker")
    assert failures.keys() == wrong | of(sandbox.w2, "test_worker_serves_its_head_alone")
    assert all(sandbox.head.name in failures[test] and sandbox.w2.address in failures[test] for test in wrong)


def test_model_with_one_byte_changed(sandbox: Sandbox, verify: Verification) -> None:
    model = sandbox.head.out("tr '\\0' '\\n' </proc/$(systemctl show llama-server -P MainPID)/cmdline | grep gguf$")
    last = int(sandbox.head.out(f"stat -c %s {model}")) - 1
    byte = int(sandbox.head.out(f"tail -c 1 {model} | od -An -tu1"))

    def write(value: int) -> str:
        return f"printf '\\{value:03o}' | dd of={model} bs=1 seek={last} conv=notrunc status=none"

    sandbox.head.out(f"touch -r {model} /run/planted; {write(byte ^ 1)}")
    try:
        failures = verify().failures
    finally:
        sandbox.head.out(f"{write(byte)}; touch -r /run/planted {model}; rm /run/planted")
    assert failures.keys() == of(sandbox.head, "test_model_has_the_hash")
    assert sandbox.head.name in (text := "".join(failures.values()))
    assert model in text


def test_model_whose_file_was_exchanged_under_the_head(sandbox: Sandbox, verify: Verification) -> None:
    model = sandbox.head.out("tr '\\0' '\\n' </proc/$(systemctl show llama-server -P MainPID)/cmdline | grep gguf$")
    sandbox.head.out(f"cp -a {model} {model}.new && mv {model}.new {model}")
    try:
        failures = verify().failures
    finally:
        restart(sandbox)
    assert failures.keys() == of(sandbox.head, "test_head_serves_the_file_that_is_there")
    assert sandbox.head.name in (text := "".join(failures.values()))
    assert model in text


def test_head_that_was_not_built_from_the_pinned_commit(sandbox: Sandbox, verify: Verification) -> None:
    """Its release says that it is of the pinned commit, and every hash agrees; its program knows better."""
    release = sandbox.head.out("readlink -f /opt/llama.cpp/current")
    files = sandbox.head.out(f"grep -rlF {NEW[:7]} {release}/bin {release}/lib").split()
    sandbox.head.out(f"cp -a {release} {release}.planted")
    try:
        for file in files:
            sandbox.head.out(
                f"old=$(sha256sum <{file} | cut -c -64); sed -i s/{NEW[:7]}/{OLD[:7]}/g {file};"
                f" sed -i s/$old/$(sha256sum <{file} | cut -c -64)/ {release}/manifest.json"
            )
        restart(sandbox)
        failures = verify().failures
    finally:
        sandbox.head.out(f"rm -r {release}; mv {release}.planted {release}")
        restart(sandbox)
    assert failures.keys() == of(
        sandbox.head, "test_llama_server_names_the_pinned_commit", "test_running_head_was_built_from_the_pinned_commit"
    )
    assert all(sandbox.head.name in text and NEW in text for text in failures.values())


def test_release_of_another_commit(sandbox: Sandbox, verify: Verification) -> None:
    manifest = sandbox.head.out("readlink -f /opt/llama.cpp/current") + "/manifest.json"
    sandbox.head.out(f'cp -a {manifest} /run/planted; sed -i \'s/"commit": "{NEW}"/"commit": "{OLD}"/\' {manifest}')
    try:
        failures = verify().failures
    finally:
        sandbox.head.out(f"cat /run/planted >{manifest}; touch -r /run/planted {manifest}; rm /run/planted")
    assert failures.keys() == {f"test_release_is_of_the_pinned_commit[{sandbox.head.name}]"}
    assert sandbox.head.name in "".join(failures.values())


def test_verification_passes_again(verify: Verification) -> None:
    """The faults are repaired, or the tests above have proved less than they say."""
    assert verify().failures == {}


def test_verification_says_what_it_cannot_use(sandbox: Sandbox) -> None:
    command = (sys.executable, "-m", "pytest", "tests/verify")
    for arguments, sentence in (
        ((), "say what to verify"),
        (("--inventory", "inventories/nowhere.py"), "inventories/nowhere.py names no host"),
        (("--inventory", INVENTORY, "--data", "commit=abc"), "commit = 'abc' is not valid"),
        (("--inventory", INVENTORY, "--data", "ssh_port=9"), f"{sandbox.w1.name}: cannot be reached by SSH"),
    ):
        ended = run(*command, *arguments)
        assert ended.status not in (0, 1)
        assert sentence in ended.text
        assert "Traceback" not in ended.text
