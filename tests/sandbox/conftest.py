"""The sandbox for the tests: three real machines on this computer, brought up by `make sandbox` as a user would.

The tests of one file go on from where the one before left the cluster; each file begins by bringing it to a known state.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.conftest import ROOT, Ended, pyinfra, run

INVENTORY = "inventories/sandbox.py"
NEW = "0c1e57098bba43ac29e6e3b677cdceebdd22334f"
OLD = "e3a74b299085cd00013804f7fca2e03441b2da20"
STATE = Path(os.environ.get("GPUQUILT_SANDBOX_STATE", "/var/lib/gpuquilt-sandbox"))


@dataclass(frozen=True)
class Machine:
    """One machine of the sandbox."""

    name: str
    address: str
    key: str
    known_hosts: str

    def ssh(self, command: str, timeout: float = 60) -> Ended:
        """Run a shell command as root."""
        return run(
            *("ssh", "-o", "BatchMode=yes", "-o", f"UserKnownHostsFile={self.known_hosts}", "-i", self.key),
            *("-o", "ConnectTimeout=10", f"root@{self.address}", command),
            timeout=timeout,
        )

    def out(self, command: str, timeout: float = 60) -> str:
        """What a command prints; it must succeed."""
        ended = self.ssh(command, timeout)
        assert ended.status == 0, f"{self.name}: {command}: {ended.text}"
        return ended.output.strip()

    def shows(self, unit: str, *properties: str) -> dict[str, str]:
        """Properties of a unit."""
        lines = self.out(f"systemctl show {unit} --property={','.join(properties)}").splitlines()
        return dict(line.split("=", 1) for line in lines)

    def running(self, unit: str) -> str:
        """The file that the unit's process runs."""
        return self.out(f"readlink /proc/$(systemctl show {unit} --property=MainPID --value)/exe")


@dataclass(frozen=True)
class Cluster:
    """Machines that `make` has joined into one endpoint.

    :param made: what `make` said
    """

    inventory: str
    workers: tuple[Machine, ...]
    head: Machine
    made: Ended

    @property
    def machines(self) -> tuple[Machine, ...]:
        return (*self.workers, self.head)

    @property
    def endpoint(self) -> str:
        return f"http://{self.head.address}:8080"

    def deploy(self, *arguments: str, deploy: str = "deploys/cluster.py", timeout: float = 2400) -> Ended:
        """Run a deploy without a question."""
        return pyinfra("-y", self.inventory, deploy, *arguments, timeout=timeout)

    def at(self, commit: str) -> None:
        """Bring the cluster to a commit."""
        ended = self.deploy("--data", f"commit={commit}")
        assert ended.status == 0, ended.text
        assert self.commits() == {commit[:12]}

    def commits(self) -> set[str]:
        """The commits, 12 digits, of all the processes that run, in containers as well; each machine has one."""
        run = "find /proc/[0-9]*/exe -lname '/opt/llama.cpp/releases/*' -printf '%l\\n' 2>/dev/null | grep ."
        programs = [Path(line) for machine in self.machines for line in machine.out(run).splitlines()]
        return {program.parts[4].partition("-")[0] for program in programs}

    def services(self) -> dict[str, dict[str, str]]:
        """What must stay as it is when nothing is to be done: processes, their starts, and systemd's reloads."""
        found = {}
        for machine in self.machines:
            unit = "llama-server" if machine is self.head else "rpc-server"
            found[machine.name] = machine.shows(unit, "MainPID", "ExecMainStartTimestampMonotonic", "NRestarts")
            found[machine.name]["reloads"] = machine.out("journalctl -b _PID=1 --output=cat | grep -ci 'reload.*request' || true")
        return found

    def peers(self) -> set[str]:
        """What the head is connected to."""
        return set(self.head.out("ss -Htnp state established | grep llama-server | awk '{print $4}'").split())

    def ask(self, tokens: int = 8, timeout: float = 30) -> str:
        """The model's completion."""
        body = {"prompt": "The capital city of France is called", "max_tokens": tokens, "temperature": 0}
        answer = requests.post(f"{self.endpoint}/v1/completions", json=body, timeout=timeout)
        answer.raise_for_status()
        return str(answer.json()["choices"][0]["text"])


@dataclass(frozen=True)
class Sandbox(Cluster):
    """What `make sandbox` makes."""

    @property
    def w1(self) -> Machine:
        return self.workers[0]

    @property
    def w2(self) -> Machine:
        return self.workers[1]


def machines_of(state: Path) -> dict[str, Machine]:
    """The machines of a sandbox, by the last word of their names.

    :param state: its folder
    """
    described = json.loads((state / "machines.json").read_text())["machines"]
    machines = [Machine(there["name"], there["address"], there["ssh_key"], there["known_hosts"]) for there in described]
    return {machine.name.rpartition("-")[2]: machine for machine in machines}


def changes(ended: Ended) -> dict[str, list[str]]:
    """Operation name → hosts on which it changed something or failed, from the output of `pyinfra --json`."""
    results: dict[str, Any] = json.loads(ended.output)["results"]
    return {
        operation["name"]: [*operation["success"], *operation["error"]]
        for operation in results["operations"]
        if operation["success"] or operation["error"]
    }


@dataclass
class Watch:
    """Asks the endpoint for an answer all the time, and remembers who answered when.

    :param pause: seconds between an answer and the next question; answers take a share of the processors
    """

    sandbox: Sandbox
    pause: float = 0.1
    answers: list[tuple[float, str]] = field(default_factory=list)
    _end: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Watch:
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
        # What began to serve during the last pause has answered nobody yet.
        self._ask()

    def _watch(self) -> None:
        self._ask()
        while not self._end.wait(self.pause):
            self._ask()

    def _ask(self) -> None:
        try:
            self.sandbox.ask(tokens=1, timeout=5)
            build = requests.get(f"{self.sandbox.endpoint}/props", timeout=5).json()["build_info"]
            self.answers.append((time.monotonic(), build))
        except (requests.RequestException, KeyError, IndexError):
            pass

    @property
    def downtime(self) -> float:
        """The longest time between two answers, in seconds."""
        times = [at for at, _ in self.answers]
        return max(later - earlier for earlier, later in pairwise(times))

    @property
    def builds(self) -> list[str]:
        """The builds that answered, in order, each once per stretch."""
        builds = [build for _, build in self.answers]
        return [build for index, build in enumerate(builds) if index == 0 or builds[index - 1] != build]


def downtime(text: str) -> float:
    """The seconds that a run says the endpoint was down."""
    said = re.search(r"downtime (\d+\.\d) s", text)
    assert said is not None, text
    return float(said[1])


def need_root() -> None:
    """Pass over what needs machines where none can be made; continuous integration has to make them."""
    if os.geteuid() != 0:
        reason = "the sandbox needs root: run the tests as root"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Sandbox]:
    """Bring the sandbox up as a user would."""
    need_root()
    # Minutes with empty caches, else seconds; how many minutes is measured by test_make.py.
    made = run("make", "sandbox", timeout=30 * 60)
    assert made.status == 0, made.text
    machines = machines_of(STATE)
    yield Sandbox(INVENTORY, (machines["w1"], machines["w2"]), machines["head"], made)


def kill(process: subprocess.Popen[Any]) -> None:
    """Kill a run of pyinfra as a lost terminal or the OOM killer would: at once, and without a word to the hosts."""
    process.kill()
    process.wait(timeout=30)


@contextmanager
def person(machine: Machine, sudo: str) -> Iterator[str]:
    """A user who logs in with the sandbox's key, and may use sudo as the rule says."""
    machine.out(
        "useradd --create-home --shell /bin/bash keeper && mkdir -p ~keeper/.ssh"
        " && cp /root/.ssh/authorized_keys ~keeper/.ssh/ && chown -R keeper: ~keeper/.ssh"
        f" && echo 'keeper ALL=(ALL) {sudo}' >/etc/sudoers.d/keeper"
    )
    try:
        yield "keeper"
    finally:
        machine.out("rm -f /etc/sudoers.d/keeper; userdel --force --remove keeper 2>/dev/null; true")


def inventory_as(folder: Path, name: str, user: str) -> str:
    """The sandbox's inventory with one host that is reached as a user with sudo."""
    text = (ROOT / INVENTORY).read_text()
    path = folder / "sandbox.py"
    path.write_text(
        text
        + "\nfor _group in (workers, heads):\n"
        + f"    _group[:] = [(n, d | {{'ssh_user': {user!r}, '_sudo': True}}) if n == {name!r} else (n, d) for n, d in _group]\n"
        + "all = ([*workers, *heads], all[1])\n"
    )
    return str(path)
