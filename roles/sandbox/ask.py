"""The end of `make sandbox` and `make sandbox-mixed`: a question to the model, what runs where, and how to go on.

Run as ``python -m roles.sandbox.ask INVENTORY [TARGET]``; the target is make's. The inventory is read by
pyinfra, and the answer comes from outside, through the OpenAI-style API, as it would for any other client.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import requests

from roles.base.units import main_pid
from roles.sandbox.inputs import SOURCES
from roles.sandbox.settings import Settings

QUESTION = "The capital city of France is called"
TOKENS = 32
PATIENCE = 120
"""Seconds to wait for the answer."""

STATE_VARIABLE = "GPUQUILT_SANDBOX_STATE"
DEFAULT_STATE = str(Settings().sandbox_state)
"""How a sandbox in another folder is named to make and to inventories/sandbox.py."""

ROLES = {"rpc-server": "worker", "llama-server": "head"}

LOOK = (
    "for unit in rpc-server llama-server; do\n"
    + main_pid("$unit")
    + r"""
    [ "$pid" -gt 0 ] || continue
    program=$(readlink /proc/$pid/exe)
    release=${program#/opt/llama.cpp/releases/}
    release=${release%%/*}
    commit=$(sed -n 's/^ *"commit": *"\([0-9a-f]*\)".*/\1/p' /opt/llama.cpp/releases/$release/manifest.json)
    echo "$unit $release ${commit:-unknown}" $(ss -Htlnp | grep "pid=$pid," | awk '{print $4}')
done
"""
)
"""One line for each service of ours that runs: unit, release, commit, and the sockets that it listens on."""


class Unanswered(Exception):
    """There is no answer; the text is the sentence that the user reads."""


@dataclass(frozen=True)
class Service:
    """What runs on a host.

    :param role: worker or head
    :param release: the release that the process runs, as its folder is called
    :param commit: 40 hexadecimal digits
    :param listens: ``address:port`` of its sockets
    """

    host: str
    role: str
    release: str
    commit: str
    listens: tuple[str, ...]


@dataclass(frozen=True)
class Answer:
    """What the model said.

    :param tokens: length of the text
    :param speed: tokens per second
    """

    text: str
    tokens: int
    speed: float


def main(arguments: Sequence[str]) -> int:
    """:return: 0 when the model answered"""
    if len(arguments) not in (1, 2):
        print("say which inventory: python -m roles.sandbox.ask INVENTORY [TARGET]", file=sys.stderr)
        return 2
    inventory, target = [*arguments, "sandbox"][:2]
    try:
        services = look(inventory)
        endpoint = endpoint_of(services)
        print(report(inventory, target, endpoint, ask(endpoint), services))
    except Unanswered as problem:
        print(problem, file=sys.stderr)
        return 1
    return 0


def look(inventory: str) -> list[Service]:
    """Ask every host of an inventory what it runs.

    :raises Unanswered: pyinfra could not reach them
    """
    command = [sys.executable, "-m", "pyinfra", "--json", inventory, "fact", "server.Command", f"command={LOOK}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Unanswered(f"{inventory}: pyinfra could not look at its hosts; it says:\n{done.stderr.strip()}")
    facts: dict[str, dict[str, str | None]] = json.loads(done.stdout)
    (by_host,) = facts.values()
    return services_of(by_host)


def services_of(by_host: Mapping[str, str | None]) -> list[Service]:
    """Host → the lines that `LOOK` printed there, read; in the order of the hosts' names, workers first."""
    found = []
    for host, text in by_host.items():
        for line in (text or "").splitlines():
            unit, release, commit, *listens = line.split()
            found.append(Service(host, ROLES[unit], release, commit, tuple(listens)))
    return sorted(found, key=lambda service: (service.role == "head", service.host))


def endpoint_of(services: Iterable[Service]) -> str:
    """The URL of the first head.

    :raises Unanswered: no head listens
    """
    for service in services:
        if service.role == "head" and service.listens:
            return f"http://{service.listens[0]}/v1"
    raise Unanswered("no host runs a llama-server that listens: run the deploy again, and see what it says.")


def ask(endpoint: str) -> Answer:
    """Ask the model one question.

    :raises Unanswered: it did not answer
    """
    request = {"prompt": QUESTION, "max_tokens": TOKENS, "temperature": 0}
    started = time.monotonic()
    try:
        response = requests.post(f"{endpoint}/completions", json=request, timeout=PATIENCE)
        response.raise_for_status()
        return read_answer(response.json(), time.monotonic() - started)
    except (requests.RequestException, LookupError, TypeError, ValueError) as error:
        raise Unanswered(f"{endpoint} did not answer ({error!r}): see journalctl -u llama-server on the head.") from error


def read_answer(response: Mapping[str, Any], seconds: float) -> Answer:
    """Read the API's response.

    :param seconds: how long it took; used where llama-server does not tell its own measurement
    :raises LookupError, TypeError, ValueError: it is no completion
    """
    tokens = int(response["usage"]["completion_tokens"])
    speed = response.get("timings", {}).get("predicted_per_second") or tokens / max(seconds, 0.001)
    return Answer(str(response["choices"][0]["text"]), tokens, float(speed))


def report(inventory: str, target: str, endpoint: str, answer: Answer, services: Sequence[Service]) -> str:
    """What the user reads at the end.

    :param target: by which make has made the sandbox
    """
    # Everything is on one commit; the other one that the sandbox has is the way to try an upgrade.
    other = next((source.commit for source in SOURCES if source.commit != services[0].commit), SOURCES[0].commit)
    request = json.dumps({"prompt": QUESTION, "max_tokens": TOKENS})
    state = os.environ.get(STATE_VARIABLE, DEFAULT_STATE)
    named = "" if state == DEFAULT_STATE else f"\n    export {STATE_VARIABLE}={state}"
    return f"""
The model was asked: {QUESTION}
It answered:         {" ".join(answer.text.split())}
Speed:               {answer.speed:.1f} tokens/s ({answer.tokens} tokens)
Endpoint:            {endpoint} (OpenAI-style API)

What runs where:
{_table(services)}

How to go on:
    . .venv/bin/activate{named}
  ask it:         curl {endpoint}/completions -H 'Content-Type: application/json' -d '{request}'
  verify it:      pytest tests/verify --inventory {inventory}
  up- or downgrade it, here to the other commit that the sandbox has:
                  pyinfra {inventory} deploys/cluster.py --data commit={other}
                  (to stay there, change the line `commit` in {inventory} and run it without --data)
  roll it back:   pyinfra {inventory} deploys/rollback.py
  your machines:  copy inventories/lab.py, describe them there, and run
                  pyinfra inventories/lab.py deploys/cluster.py

How to remove everything:
    make {target}-down
  The downloads stay for the next time; to remove them as well:
    make {target}-down SANDBOX='--data sandbox_purge=true'"""


def _table(services: Sequence[Service]) -> str:
    rows = [("host", "role", "commit", "release", "listens on")]
    rows += [
        (service.host, service.role, service.commit[:12], service.release, " ".join(service.listens)) for service in services
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join("    " + "  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
