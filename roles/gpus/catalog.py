"""What is known of GPUs, drivers, toolkits, images and packages: catalog.yaml, typed. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

FILE = Path(__file__).with_name("catalog.yaml")

IdRange = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{4}(-[0-9a-f]{4})?$")]
"""Device ids of one vendor: ``1b06``, or ``1b00-1d56``, both ends included."""
Version = Annotated[str, StringConstraints(pattern=r"^[0-9]+(\.[0-9]+)*$")]
Vendor = Literal["nvidia", "amd", "intel"]
Flavour = Literal["open", "proprietary"]
Backend = Literal["cpu", "cuda", "sycl", "hip", "vulkan"]
"""What llama.cpp computes with."""


class OpenModule(StrEnum):
    """Whether NVIDIA's open kernel module drives a generation."""

    IMPOSSIBLE = "impossible"
    POSSIBLE = "possible"
    REQUIRED = "required"


class Support(StrEnum):
    """What a branch of NVIDIA's driver is to NVIDIA."""

    LONG_TERM = "long-term"
    PRODUCTION = "production"
    NEW_FEATURE = "new-feature"
    LEGACY = "legacy"


class Entry(BaseModel):
    """Every entry says where its facts come from."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    source: str = Field(min_length=1)


class Chips(Entry):
    """Chips of one generation that are compiled for alike.

    :param chips: how their names begin, as pci.ids has them: ``GP10``, ``Navi 3``; the longest prefix in the catalog decides
    :param ids: device ids of the vendor's GPUs; the narrowest range in the catalog decides
    :param integrated: they share the memory of the processor
    :param bridged: their cards have PCI Express bridges of their own, behind which the GPU's own link says nothing of the slot's
    """

    chips: tuple[str, ...] = ()
    ids: tuple[IdRange, ...] = ()
    compute_capability: Version | None = None
    gfx_target: str | None = None
    integrated: bool = False
    bridged: bool = False


class Generation(Entry):
    """GPUs that need the same driver.

    :param title: its name in words
    :param first_branch: oldest branch of NVIDIA's driver that drives it; None where every branch that is still offered does
    :param last_branch: newest branch that does; None where every newer one does
    """

    vendor: Vendor
    title: str
    open_module: OpenModule | None = None
    first_branch: int | None = None
    last_branch: int | None = None
    members: tuple[Chips, ...]

    def takes(self, flavour: Flavour | None) -> bool:
        """Whether a flavour of the module drives it, as far as is known."""
        never = {"open": OpenModule.IMPOSSIBLE, "proprietary": OpenModule.REQUIRED}
        return flavour is None or self.open_module != never[flavour]


class Branch(Entry):
    """A branch of NVIDIA's driver.

    :param end_of_life: the last day on which NVIDIA maintains it; None where that is not known
    :param open_only: it has no proprietary kernel module
    """

    support: Support
    end_of_life: date | None = None
    open_only: bool = False


class Toolkit(Entry):
    """A minor release of CUDA.

    :param driver: version of the driver that it was made with
    :param lowest_driver: the oldest driver branch on which its programs start at all (minor version compatibility)
    :param capabilities: the compute capabilities that it compiles for
    :param build_image: container image with the compiler
    :param runtime_image: the same without it
    """

    driver: Version
    lowest_driver: int
    capabilities: tuple[Version, ...]
    build_image: str
    runtime_image: str


class Images(Entry):
    """Container images of a backend other than CUDA, whose images come with the toolkit.

    :param gfx_targets: AMD's GPUs that its libraries have code for
    :param unfit: generations that what its runtime image gets from the distribution does not drive
    """

    build_image: str
    runtime_image: str
    unfit: tuple[str, ...] = ()
    gfx_targets: tuple[str, ...] = ()


class DriverOffer(Entry):
    """A branch of NVIDIA's driver that a package source has for a distribution.

    :param origin: ``distribution`` (its own archive) or ``nvidia`` (NVIDIA's repository)
    :param version: newest version that was seen there
    :param packages: what to install for computing, without a desktop, by flavour; a flavour that is left out is not offered;
        ``{kernel}`` stands for the kernel, see `Distribution.packages_for`
    :param vulkan: what to install beside that for Vulkan; empty where that is not known
    :param signed: its modules are signed by the distribution, so that Secure Boot accepts them
    :param supported: false for a version that NVIDIA maintains no more, whatever the distribution does
    """

    origin: Literal["distribution", "nvidia"]
    branch: int
    version: Version
    packages: dict[Flavour, tuple[str, ...]]
    vulkan: tuple[str, ...] = ()
    signed: bool = False
    supported: bool = True


class Graphics(Entry):
    """What a distribution has for GPUs whose kernel driver is Linux's own.

    :param firmware: vendor → the packages with the firmware of its GPUs
    :param vulkan: loader, drivers and tools for computing with Vulkan on the host itself
    :param vulkan_build: what building for Vulkan there needs beside a compiler; empty where the distribution lacks some of it
    """

    firmware: dict[Vendor, tuple[str, ...]]
    vulkan: tuple[str, ...]
    vulkan_build: tuple[str, ...] = ()


class ToolkitOffer(Entry):
    """A minor release of CUDA that a package source has for a distribution, to be installed on a host itself.

    :param origin: ``distribution`` (its own archive) or ``nvidia`` (NVIDIA's repository)
    :param packages: what to install to build; none of them brings a driver of its own
    :param runtime: what to install to run what was built with it on another host: libcudart and libcublas
    :param compiler: path of nvcc, which NVIDIA's packages put where no PATH leads
    :param host_compiler: the C++ compiler that nvcc works with, package and program of one name; None where it does with the
        distribution's usual one
    """

    origin: Literal["distribution", "nvidia"]
    packages: tuple[str, ...]
    runtime: tuple[str, ...]
    compiler: str
    host_compiler: str | None = None

    @property
    def build_packages(self) -> tuple[str, ...]:
        """What a host needs to build with it."""
        return (*self.packages, self.host_compiler) if self.host_compiler else self.packages

    @property
    def cmake_options(self) -> dict[str, str]:
        """How CMake finds it on the host itself."""
        found = {"CMAKE_CUDA_COMPILER": self.compiler}
        return found | ({"CMAKE_CUDA_HOST_COMPILER": self.host_compiler} if self.host_compiler else {})


class Distribution(Entry):
    """A release of a distribution.

    :param drivers: where NVIDIA's driver can come from
    :param graphics: what GPUs of other vendors than NVIDIA need
    :param toolkits: where CUDA's minor releases can come from
    :param kernel: how names of packages for its usual kernel end, e.g. amd64 or generic
    :param newer_kernel: what Ubuntu appends to that for the kernel of a later release; None where the names stay the same
    :param kernel_version: version of its own kernel, from which later ones are told; likewise None
    :param renamed: packages that are called differently from the others of their kind
    :param backends: backends apart from cpu and cuda whose drivers it has itself, or the vendor of the GPU has for it
    """

    title: str
    drivers: tuple[DriverOffer, ...]
    graphics: Graphics
    toolkits: dict[Version, ToolkitOffer] = {}
    kernel: str
    newer_kernel: str | None = None
    kernel_version: Version | None = None
    renamed: dict[str, str] = {}
    backends: tuple[Literal["sycl", "hip", "vulkan"], ...] = ()

    def packages_for(self, names: Iterable[str], release: str) -> tuple[str, ...]:
        """The names of packages, those that belong to a kernel for a certain one.

        :param names: with ``{kernel}`` where it belongs
        :param release: of that kernel, as ``uname -r`` prints it; empty for the distribution's usual one
        """
        found = re.fullmatch(r"([0-9]+\.[0-9]+).*?-((?:cloud-|rt-)?[a-z][a-z0-9]*)", release)
        kernel = found[2] if found else self.kernel
        if found and kernel == self.kernel and self.kernel_version and numbers(found[1]) > numbers(self.kernel_version):
            kernel += self.newer_kernel or ""
        full = (name.format(kernel=kernel) for name in names)
        return tuple(self.renamed.get(name, name) for name in full)


class Catalog(BaseModel):
    """The whole of it.

    :param distributions: ``ID`` + ``VERSION_ID`` of os-release, e.g. debian13
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    generations: dict[str, Generation]
    branches: dict[int, Branch]
    toolkits: dict[Version, Toolkit]
    images: dict[Backend, Images]
    distributions: dict[str, Distribution]

    def toolkit_offer(self, system: str, toolkit: str | None) -> ToolkitOffer | None:
        """Where a host itself can have a toolkit from; None where it cannot, or none is wanted.

        :param system: its distribution and release, e.g. debian13
        :param toolkit: CUDA's minor release, e.g. 12.9
        """
        distribution = self.distributions.get(system)
        return distribution.toolkits.get(toolkit) if distribution and toolkit else None

    def find(self, vendor: str, chip: str | None, device: str | None) -> tuple[str, Chips] | None:
        """Find a GPU by the name of its chip, or else by its id.

        :param chip: as pci.ids has it, e.g. ``GP102``
        :param device: 4 hexadecimal digits
        :return: a key of `generations` and its member, or None where nothing fits
        """
        members = [
            (key, member)
            for key, generation in self.generations.items()
            if generation.vendor == vendor
            for member in generation.members
        ]
        name = (chip or "").casefold()
        named = [
            (len(begin), key, member) for key, member in members for begin in member.chips if name.startswith(begin.casefold())
        ]
        if named:
            return max(named, key=lambda found: found[0])[1:]
        spans = [(span(ids), key, member) for key, member in members for ids in member.ids]
        holding = [found for found in spans if device and int(device, 16) in found[0]]
        return min(holding, key=lambda found: len(found[0]))[1:] if holding else None


def numbers(text: str) -> tuple[int, ...]:
    """A version that can be compared with another."""
    return tuple(int(digits) for digits in re.findall(r"\d+", text))


def span(ids: IdRange) -> range:
    """The device ids that a range of the catalog stands for."""
    first, _, last = ids.partition("-")
    return range(int(first, 16), int(last or first, 16) + 1)


@cache
def load() -> Catalog:
    """The catalog as it is shipped."""
    # Where PyYAML was built with libyaml, it is eight times as fast.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return Catalog.model_validate(yaml.load(FILE.read_text(), Loader=loader))
