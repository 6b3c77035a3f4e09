"""What is to be said of a host beside its plan. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Remarks:
    """Collected while a host's plan is made, one sentence each, without the host's name.

    :param refusals: why it cannot be done as it stands, and the way out
    :param warnings: what works and is not good
    :param choices: what the plan took from the inventory in place of its own choice, or had to take in place of a better one
    :param steps: what would be done to the host before anything is built, in order
    :param reboots: why a reboot is owed, without which what is to be done here does not work
    :param wishes: why something else on the host asks for one
    """

    refusals: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    choices: list[str] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)
    reboots: list[str] = field(default_factory=list)
    wishes: list[str] = field(default_factory=list)

    def override(self, key: str, value: object, instead: object) -> None:
        """A setting of the inventory decided.

        :param instead: what the plan would have chosen; nothing is said of it where that is the same, or nothing
        """
        said = f"{key} = {value!r} from the inventory"
        self.choices.append(said if instead in (None, "", value) else f"{said}, in place of {instead}")
