"""Remove them again: `pyinfra @local deploys/sandbox_down.py`; with `--data sandbox_purge=true` the downloads too."""

from roles.sandbox import sandbox_down

sandbox_down()
