"""What preflight is told on its command line."""

from __future__ import annotations

from pydantic import Field

from roles.base.settings import RoleSettings


class Settings(RoleSettings):
    """Read by deploys/preflight.py alone; give it on the command line, with `--data`."""

    plan_json: str | None = Field(
        None,
        min_length=1,
        description="the path of a file on your computer that the plan is written to, as JSON; its folder must be there",
    )
