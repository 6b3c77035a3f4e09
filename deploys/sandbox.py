"""Three machines on this computer: `pyinfra @local deploys/sandbox.py`, as root."""

from roles.sandbox import sandbox_up

sandbox_up()
