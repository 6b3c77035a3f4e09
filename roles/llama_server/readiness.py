"""Whether a head serves."""

from __future__ import annotations

from collections.abc import Sequence

from pyinfra.api.host import Host
from pyinfra.api.state import State

from roles.base.remote import HostError, run, say
from roles.base.sight import Sight
from roles.base.watch import Watch
from roles.cluster.backend import CPU
from roles.cluster.state import LLAMA_SERVER, Unit
from roles.llama_server import completion
from roles.llama_server.journal import diagnosis, without_gpu
from roles.llama_server.settings import Settings

JOURNAL = 1000
"""Lines of its journal that it may have written when it has loaded a model."""


def answers(state: State, host: Host, unit: Unit, settings: Settings) -> float:
    """Wait until the model is loaded, ask it, and see that every worker takes part.

    Neither a successful start nor /health says this: a head may come up without a worker, or with one that computes nonsense.

    :return: when the answer was there, in seconds since 1970 by the host's clock
    :raises HostError: it does not get that far in time, or answers wrongly; the text says why
    """
    watch = Watch(state, host, LLAMA_SERVER, lambda lines: diagnosis(lines, unit.endpoints))

    def ready(sight: Sight) -> bool:
        if sight.listening and unit.listens not in sight.listening:
            found = ", ".join(sorted(sight.listening))
            raise HostError(f"{LLAMA_SERVER} listens on {found} instead of {unit.listens}: look for a drop-in of its unit.")
        return bool(sight.listening) and _healthy(state, host, unit)

    watch.wait(settings.start_timeout, ready, _doing)
    _computes(unit, watch.journal(JOURNAL))
    answer = _ask(state, host, unit, settings, watch)
    _complete(unit, watch.look())
    return answer


def _computes(unit: Unit, journal: Sequence[str]) -> None:
    said = without_gpu(journal)
    if said and unit.backend not in ("", CPU):
        raise HostError(
            f'{LLAMA_SERVER} computes without the GPUs of its own that are planned for it (its journal says "{said}"): see to'
            " the driver there, or correct `backend`."
        )


def _ask(state: State, host: Host, unit: Unit, settings: Settings, watch: Watch) -> float:
    question = completion.command(_url(unit), settings.check_prompt, settings.check_timeout)
    answer = run(state, host, question, timeout=settings.check_timeout + 10)
    if not answer.ok:
        raise HostError(f"{LLAMA_SERVER} could not be asked ({' '.join(answer.errors) or 'no reason was given'}).")
    found = completion.parse(answer.output)
    if found.problem:
        # When it ended on the question, this says why.
        watch.look()
        raise HostError(f"{LLAMA_SERVER} did not answer {settings.check_prompt!r} ({found.problem}): {watch.reason()}")
    if settings.check_answer not in found.text:
        raise HostError(
            f"{LLAMA_SERVER} answers {settings.check_prompt!r} with {found.text!r}, without {settings.check_answer!r}: a device"
            " may compute wrongly, or llama_server_check_answer does not suit this model."
        )
    say(host, f"{LLAMA_SERVER} answers: {settings.check_prompt}{found.text.rstrip()}")
    return found.time


def _complete(unit: Unit, sight: Sight) -> None:
    lost = [endpoint for endpoint in unit.endpoints if endpoint not in sight.peers]
    if lost:
        raise HostError(
            f"{LLAMA_SERVER} answers without its worker {', '.join(lost)}: see whether rpc-server.service runs there."
        )


def _healthy(state: State, host: Host, unit: Unit) -> bool:
    curl = f"curl --silent --max-time 5 --output /dev/null --write-out '%{{http_code}}' {_url(unit)}/health; true"
    return run(state, host, curl, timeout=30).output[:1] == ["200"]


def _url(unit: Unit) -> str:
    """Where the host itself reaches its endpoint, without a slash at the end."""
    return f"http://{unit.listens.replace('0.0.0.0', '127.0.0.1')}"


def _doing(sight: Sight) -> str:
    if sight.state == "activating start-pre":
        return "it waits for its workers"
    if sight.listening:
        return "it loads the model"
    return f"it does not listen yet ({sight.state})"
