"""The settings of the sandbox. Given with ``--data``: they describe this computer, not the hosts of an inventory."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network
from typing import Annotated, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from roles.base.settings import RoleSettings

LONGEST_INTERFACE_NAME = 15
"""IFNAMSIZ - 1; systemd-nspawn calls the host's end of a machine's cable ``vb-<machine>``."""

Folder = Annotated[str, Field(pattern=r"^(/\.?[A-Za-z0-9_-][A-Za-z0-9._-]*){2,}$")]
"""An absolute path without ``..``; no character in it means anything to a shell or to the options of an overlay mount."""


class SandboxMachine(BaseModel):
    """One machine: what it is called after the prefix, which Debian it runs, and where it is in the subnet."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$")]
    suite: Literal["bookworm", "trixie"] = "trixie"
    octet: Annotated[int, Field(ge=2, le=254)]


class Settings(RoleSettings):
    """What the sandbox is called, where it lives, and which machines it has.

    The keys are written out in full here, because ``prefix`` is one of them.
    """

    prefix: ClassVar[str] = ""

    sandbox_subnet: IPv4Network = Field(
        default=IPv4Network("198.18.77.0/24"),
        description="IPv4 network of 256 addresses that nothing else on this computer uses; 198.18.0.0/15 is reserved for tests",
    )
    sandbox_prefix: str = Field(
        default="gq",
        pattern=r"^[a-z][a-z0-9]*$",
        description="Lower-case letters and digits that the name of every machine, interface and table begins with",
    )
    sandbox_state: Folder = Field(
        default="/var/lib/gpuquilt-sandbox",
        description="Absolute path of the folder that holds the machines; removed with the sandbox",
    )
    sandbox_cache: Folder = Field(
        default="/var/cache/gpuquilt-sandbox",
        description="Absolute path of the folder for what was downloaded; it outlives the sandbox and may be shared by several",
    )
    sandbox_machines: tuple[SandboxMachine, ...] = Field(
        default=(
            SandboxMachine(name="w1", octet=11),
            SandboxMachine(name="w2", octet=12),
            SandboxMachine(name="head", octet=10),
        ),
        min_length=1,
        description="List of machines: name, suite (bookworm or trixie) and octet (the last number of the address, 2 to 254)",
    )
    sandbox_nameserver: IPv4Address | None = Field(
        default=None,
        description="IPv4 address of the resolver that the machines ask; None: the one that this computer asks",
    )
    sandbox_purge: bool = Field(
        default=False,
        description="true: sandbox_down.py removes sandbox_cache as well",
    )

    @model_validator(mode="after")
    def _machines_can_live_together(self) -> Self:
        if self.sandbox_subnet.prefixlen != 24:
            raise ValueError(f"sandbox_subnet = {self.sandbox_subnet} is not a /24: write it like 198.18.77.0/24.")
        for what, values in (
            ("name", [machine.name for machine in self.sandbox_machines]),
            ("octet", [machine.octet for machine in self.sandbox_machines]),
        ):
            if len(set(values)) != len(values):
                raise ValueError(f"sandbox_machines has the same {what} twice: give each machine its own.")
        for machine in self.sandbox_machines:
            interface = f"vb-{self.sandbox_prefix}-{machine.name}"
            if len(interface) > LONGEST_INTERFACE_NAME:
                raise ValueError(
                    f"sandbox_prefix or the machine's name is too long: the interface {interface} has {len(interface)}"
                    f" characters, Linux allows {LONGEST_INTERFACE_NAME}."
                )
        if self.sandbox_state == self.sandbox_cache:
            raise ValueError("sandbox_state and sandbox_cache are the same folder: one is removed, the other stays.")
        return self
