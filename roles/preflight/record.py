"""The plan as a file on this computer."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

from roles.cluster.plan import Plan, as_data


def write(name: str, plan: Plan) -> list[str]:
    """Write the plan as JSON, all of it or nothing.

    :param name: path of the file, which is replaced
    :return: why that was not possible, one sentence; empty where it was
    """
    path = Path(name)
    new = path.parent / f".{path.name}.{os.getpid()}"
    try:
        # A link or a device would be replaced by the file.
        if path.is_symlink() or (path.exists() and not path.is_file()):
            raise OSError(0, "it is there, and is no plain file")
        new.write_text(json.dumps(as_data(plan), indent=1) + "\n")
        new.replace(path)
    except OSError as error:
        with suppress(OSError):
            new.unlink()
        return [
            f"inventory: plan_json = {name!r} cannot be written ({error.strerror}): name a file in a folder that is there and"
            " that you may write to."
        ]
    return []
