"""Taking away what roles have put on a host."""

from __future__ import annotations

import shlex

from pyinfra import host
from pyinfra.api import StringCommand, operation

from roles.base.facts import AccountFact, EmptyFact, PathsFact
from roles.base.machine import HOME, USER
from roles.base.operations import Commands


@operation()
def no_paths(paths: list[str], folders: list[str] | None = None) -> Commands:
    """Have none of these files and folders.

    :param paths: absolute; folders with all that is in them
    :param folders: absolute, the innermost first; they go as well where nothing is left in them
    """
    there = host.get_fact(PathsFact, paths=paths)
    if there:
        yield StringCommand("rm", "-rf", "--one-file-system", "--", *map(shlex.quote, there))
    for folder in folders or []:
        # Another role may have something in there.
        if host.get_fact(EmptyFact, folder=folder):
            yield StringCommand("rmdir", shlex.quote(folder))
    host.noop("nothing of it is there")


@operation()
def no_user() -> Commands:
    """Have no system user for the services, unless somebody else's has its name."""
    if host.get_fact(AccountFact) == HOME:
        yield StringCommand(f"userdel {USER}")
        return
    host.noop("there is no such user of ours")
