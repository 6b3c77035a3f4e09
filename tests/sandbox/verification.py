"""The tests of ``tests/verify``, run as a user would."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from tests.conftest import run


@dataclass(frozen=True)
class Verdict:
    """What verification said.

    :param failures: test → the sentence of its failure
    :param text: everything that a user would have read
    """

    passed: int
    failures: dict[str, str]
    text: str


@dataclass(frozen=True)
class Verification:
    """Verifies the hosts of an inventory.

    :param report: a file to write to
    """

    inventory: str
    report: Path

    def __call__(self, *arguments: str) -> Verdict:
        command = (sys.executable, "-m", "pytest", "tests/verify", "--inventory", self.inventory)
        ended = run(*command, f"--junit-xml={self.report}", *arguments)
        assert ended.status in (0, 1), ended.text
        cases = list(ElementTree.parse(self.report).iter("testcase"))
        failures = {
            case.attrib["name"]: found.attrib["message"]
            for case in cases
            for found in (*case.iter("failure"), *case.iter("error"))
        }
        assert not list(ElementTree.parse(self.report).iter("skipped")), ended.text
        return Verdict(len(cases) - len(failures), failures, ended.text)
