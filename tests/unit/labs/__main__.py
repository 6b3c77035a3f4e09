"""Write every plan.yaml anew."""

import yaml

from tests.unit.labs import HERE, LABS, wanted

for lab in LABS:
    text = yaml.safe_dump(wanted(lab), sort_keys=False, width=120, allow_unicode=True)
    (HERE / lab / "plan.yaml").write_text(text)
