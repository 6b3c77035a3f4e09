"""The question that a started head must answer, and how its answer is judged. Pure."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

TOKENS = 32
"""Length of the answer: enough for a word and what a model may put before it."""


@dataclass(frozen=True)
class Completion:
    """What came back.

    :param text: the model's text
    :param problem: why there is none, empty when there is one
    :param time: when the answer was there, in seconds since 1970 by the host's clock
    """

    text: str = ""
    problem: str = ""
    time: float = 0.0


def command(url: str, prompt: str, timeout: int) -> str:
    """The shell command that asks; `parse` reads its output. It ends with 0 also when nobody answers.

    :param url: the endpoint, without a slash at the end
    :param timeout: seconds
    """
    request = {"prompt": prompt, "temperature": 0, "max_tokens": TOKENS, "stream": False}
    data = shlex.quote(json.dumps(request))
    curl = f"curl --silent --show-error --max-time {timeout} --header 'Content-Type: application/json' --data-raw {data}"
    return f"{curl} --write-out '\\n%{{http_code}}\\n' {url}/v1/completions 2>&1; date +%s.%N"


def parse(lines: Sequence[str]) -> Completion:
    """Read the output of `command`: the response's body, the HTTP status, the time; never raises."""
    if len(lines) < 2:
        return Completion(problem="nothing came back")
    *body, status, time = [line.strip() for line in lines]
    try:
        text = _text("\n".join(body), status)
        return Completion(text=text, time=float(time))
    except ValueError as error:
        return Completion(problem=str(error))


def _text(body: str, status: str) -> str:
    """
    :raises ValueError: there is no text, with the reason
    """
    try:
        response = json.loads(body)
    except ValueError:
        raise ValueError(" ".join(body.split())[-200:] or f"HTTP status {status} without a body") from None
    if status != "200":
        raise ValueError(f"HTTP status {status}: {_message(response)}")
    match response:
        case {"choices": [{"text": str(text)}, *_]}:
            return text
    raise ValueError("the response holds no text")


def _message(response: object) -> str:
    match response:
        case {"error": {"message": str(message)}}:
            return message
    return "no message"
