"""The plan for each lab is the one in its file, all of it."""

import pytest
import yaml

from tests.unit.labs import HERE, LABS, wanted


@pytest.mark.parametrize("lab", LABS)
def test_the_plan_is_the_one_in_the_file(lab: str) -> None:
    assert wanted(lab) == yaml.safe_load((HERE / lab / "plan.yaml").read_text())
