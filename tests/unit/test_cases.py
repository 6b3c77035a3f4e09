"""Facts and operations, each told by JSON files: what goes in, and which value or which commands come out.

`ROLE/cases/facts.NAME/*.json` and `ROLE/cases/operations.NAME/*.json` are for pyinfra-testing, as pyinfra's own tests are.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyinfra_testing.facts import make_fact_tests  # type: ignore[import-untyped]
from pyinfra_testing.operations import make_operation_tests  # type: ignore[import-untyped]

HERE = Path(__file__).parent
MAKERS = {"facts": make_fact_tests, "operations": make_operation_tests}

# A fact's command is run for real elsewhere where it is more than a line; repeating it in JSON would test nothing.
pytestmark = pytest.mark.filterwarnings("ignore:No command set for test")

for folder in sorted(HERE.glob("*/cases/*.*")):
    role = folder.parents[1].name
    make = MAKERS[folder.name.partition(".")[0]]
    globals()[f"{role}.{folder.name}"] = make(f"roles.{role}", folder.name, folder)
