"""What there is of a sandbox on this computer."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from pyinfra.api import FactBase
from typing_extensions import override

from roles.sandbox.layout import Layout, Machine
from roles.sandbox.seen import Seen, look, parse


class SandboxFact(FactBase[Seen]):
    """One look at this computer: all that the sandbox's operations decide from."""

    default = Seen

    @override
    def command(self, layout: Layout) -> str:
        self.layout = layout
        return look(layout)

    @override
    def process(self, output: list[str]) -> Seen:
        return parse(output, self.layout)


class AnsweringFact(FactBase[frozenset[str]]):
    """The names of those of the machines whose sshd answers."""

    default = frozenset

    @override
    def command(self, machines: Sequence[Machine]) -> str:
        return "\n".join(f"{answers(machine)} && echo {machine.name}" for machine in machines) + "\ntrue"

    @override
    def process(self, output: list[str]) -> frozenset[str]:
        return frozenset(output)


class MirrorReachedFact(FactBase[frozenset[str]]):
    """The names of the machines, of those given by the process that runs each, that can connect to an address.

    Asked from inside each machine's network, with this computer's own tools.
    """

    default = frozenset

    @override
    def command(self, processes: Sequence[tuple[str, int]], address: str, port: int) -> str:
        connect = shlex.quote(f'exec 3<>"/dev/tcp/{address}/{port}"')
        return (
            "\n".join(
                f"nsenter --net --target \"$(cut -d ' ' -f 1 /proc/{pid}/task/{pid}/children)\""
                f" timeout 5 bash -c {connect} 2>/dev/null && echo {name}"
                for name, pid in processes
            )
            + "\ntrue"
        )

    @override
    def process(self, output: list[str]) -> frozenset[str]:
        return frozenset(output)


class ImageFact(FactBase[bool]):
    """Whether Docker knows an image by a name."""

    default = bool

    @override
    def command(self, image: str) -> str:
        return f"docker image inspect {shlex.quote(image)} >/dev/null 2>&1 && echo yes || true"

    @override
    def process(self, output: list[str]) -> bool:
        return "yes" in output


def answers(machine: Machine) -> str:
    """A command that succeeds if the machine's sshd greets within two seconds."""
    greet = f"exec 3<>/dev/tcp/{machine.address}/22 && read -r -u 3 greeting && [[ $greeting == SSH-* ]]"
    return f"timeout 2 bash -c {shlex.quote(greet)} 2>/dev/null"
