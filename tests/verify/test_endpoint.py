"""The endpoint answers, rightly, and with the pinned commit."""

from __future__ import annotations

import json
import shlex
from typing import Any

from roles.llama_server.settings import Settings
from tests.verify.cluster import EVERY_NETWORK, Service
from tests.verify.test_connections import given_workers, live_workers


def test_head_is_healthy(head: Service) -> None:
    head.running()
    status = head.subject.ask(f"curl -s -o /dev/null --max-time 10 -w '%{{http_code}}' {_url(head, 'health')} || true")
    assert status == "200", (
        f"{head.subject}: {_url(head, 'health')} answers {status} instead of 200; see `journalctl -u {head.unit}` there."
    )


def test_head_answers_the_fixed_prompt(head: Service) -> None:
    settings = head.subject.settings[Settings]
    answer = _complete(head, settings.check_prompt)
    text = answer["choices"][0]["text"]
    assert settings.check_answer in text, (
        f"{head.subject}: to {settings.check_prompt!r} it answers {text!r}, without {settings.check_answer!r};"
        " a worker computes wrongly, or the settings belong to another model."
    )


def test_running_head_was_built_from_the_pinned_commit(head: Service) -> None:
    answer = _complete(head, head.subject.settings[Settings].check_prompt)
    commit = answer["system_fingerprint"].rpartition("-")[2]
    assert commit and head.subject.plan.commit.startswith(commit), (
        f"{head.subject}: the {head.unit} that answers was built from {commit}, and the pinned commit is"
        f" {head.subject.plan.commit}; run deploys/cluster.py."
    )


def _complete(head: Service, prompt: str) -> dict[str, Any]:
    """What the head answers at temperature 0; it is asked only if the question cannot crash it."""
    seen = head.running()
    live = live_workers(head, seen)
    lost = [endpoint for endpoint in given_workers(seen) if endpoint not in live]
    assert not lost, (
        f"{head.subject}: it was not asked, because {head.unit} would crash: it has lost its connection to"
        f" {', '.join(lost)}; run deploys/cluster.py, which restarts it."
    )
    question = json.dumps({"prompt": prompt, "temperature": 0, "seed": 0, "max_tokens": 16, "cache_prompt": False})
    timeout = head.subject.settings[Settings].check_timeout
    command = f"curl -sS --fail-with-body --max-time {timeout} -H 'Content-Type: application/json' --data-raw"
    answer: dict[str, Any] = json.loads(head.subject.ask(f"{command} {shlex.quote(question)} {_url(head, 'v1/completions')}"))
    return answer


def _url(head: Service, path: str) -> str:
    """The endpoint as the head itself reaches it."""
    address, _, port = head.listens_on.rpartition(":")
    return f"http://{head.subject.plan.address if address == EVERY_NETWORK else address}:{port}/{path}"
