"""The settings that decide what the cluster is."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator, StringConstraints

from roles.base.settings import RoleSettings
from roles.cluster.endpoints import well_formed
from roles.gpus.catalog import Backend, load
from roles.gpus.gpu import declared


def _names_a_gpu(text: str) -> str:
    declared(text, load())
    return text


def _branch(value: object) -> object:
    # By hand, because a union of types would say what is wrong once for each of them.
    if isinstance(value, str) and value.isdecimal():
        value = int(value)
    if value in ("auto", "unmanaged") or (isinstance(value, int) and 100 <= value <= 999):
        return value
    raise ValueError("it is neither 'auto' nor 'unmanaged' nor a number of three digits")


def _with_domain(address: str) -> str:
    return address if address.count(":") == 2 else f"0000:{address}"


def _as_text(value: object) -> object:
    # `--data cuda_toolkit=12.9` arrives as a number.
    return str(value) if isinstance(value, float) else value


Runtime = Literal["native", "docker"]

_Architecture = Annotated[str, StringConstraints(pattern=r"^[1-9][0-9]{1,2}[af]?(-real|-virtual)?$")]
_PciAddress = Annotated[
    str,
    StringConstraints(pattern=r"(?i)^([0-9a-f]{4}:)?[0-9a-f]{2}:[01][0-9a-f]\.[0-7]$", to_lower=True),
    AfterValidator(_with_domain),
]


_Image = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/:@-]*$")]


class Settings(RoleSettings):
    """Read for every host; what holds for all hosts belongs to the group `all`."""

    commit: str = Field(
        pattern=r"^[0-9a-f]{40}$",
        description="the llama.cpp commit that every host runs: all 40 hexadecimal digits, as `git rev-parse` prints them",
    )
    network: IPv4Network = Field(
        description="the cluster network in CIDR notation, e.g. 192.168.1.0/24: workers listen on their address in it"
    )
    address: IPv4Address | None = Field(
        None,
        description="this host's IPv4 address in the cluster network; needed only where it has several, or none yet",
    )
    rpc_port: int = Field(50052, ge=1, le=65535, description="the TCP port of this worker, 1 to 65535")
    http_port: int = Field(8080, ge=1, le=65535, description="the TCP port of the head's HTTP endpoint, 1 to 65535")
    endpoints: list[Annotated[str, AfterValidator(well_formed)]] | None = Field(
        None,
        description="the workers that a head uses, in this order, each as host:port with a worker's name in the inventory or"
        " its IPv4 address, e.g. 192.168.1.11:50052; default: every worker, in the order of the inventory",
    )
    gpus: list[Annotated[str, AfterValidator(_names_a_gpu)]] = Field(
        [],
        description="GPUs that this host does not show yet, because a virtual machine has not got its card: a list with one text"
        " for each, such as ['10de:1b06']; it is what `lspci -nn` prints of the card on the machine that has it, as a rule the"
        " hypervisor: the whole line, or its id, or its chip, e.g. GP102; a product such as RTX 4080 can be several chips",
    )
    passthrough: list[_PciAddress] = Field(
        [],
        description="GPUs of this host that belong to virtual machines and do not compute here: a list of PCI addresses, such as"
        " ['0e:00.0'], which begin the lines that `lspci` prints on this host",
    )
    runs_on: str | None = Field(
        None,
        min_length=1,
        description="the host of the group `hypervisors` that this host is a virtual machine of, by its name in the inventory:"
        " when that reboots, this one is waited for",
    )
    reboot: Literal["never", "when-owed"] = Field(
        "never",
        description="what is done where a driver or a passthrough needs a reboot to work: never (the run stops there, and says"
        " which hosts to reboot) or when-owed (they are rebooted, one at a time, and the run goes on)",
    )
    reboot_timeout: int = Field(
        600, ge=60, le=7200, description="seconds until this host must answer again after a reboot, 60 to 7200"
    )
    backend: Literal["auto", Backend] = Field(
        "auto",
        description="what computes on this host: cuda (NVIDIA), hip (AMD), sycl (Intel), vulkan (any of them) or cpu; auto: what"
        " its GPUs are made for, the processors where there is none, and on a head that is no worker",
    )
    vulkan_software: bool = Field(
        False,
        description="whether backend = 'vulkan' may compute with the processors of a host without a GPU, by Mesa's llvmpipe: true"
        " or false; it is slow, and good for trying things out",
    )
    runtime: Runtime = Field(
        "native",
        description="how this host runs llama.cpp: native (programs of the host) or docker (containers, whose image is built from"
        " build_image and runtime_image)",
    )
    container_memory: int | None = Field(
        None,
        ge=64,
        description="MiB of memory that a container of ours on this host may take, 64 or more; default: no limit",
    )
    driver: Annotated[Literal["auto", "unmanaged"] | int, PlainValidator(_branch)] = Field(
        "auto",
        description="the branch of NVIDIA's driver, e.g. 580; auto: one that is loaded and good enough stays, or else the newest"
        " long-term branch that drives all GPUs of the host; unmanaged: hands off, whatever is there",
    )
    driver_source: Literal["auto", "distribution", "nvidia"] = Field(
        "auto",
        description="where NVIDIA's driver comes from if one is installed: distribution (its own packages), nvidia (NVIDIA's"
        " repository); auto: whichever has the better branch, the distribution where both have it",
    )
    driver_flavour: Literal["auto", "open", "proprietary"] = Field(
        "auto",
        description="the kernel module of NVIDIA's driver: open or proprietary; auto: what the GPUs need, and where both would"
        " do open from branch 560 on",
    )
    cuda_toolkit: Annotated[str, BeforeValidator(_as_text), StringConstraints(pattern=r"^[0-9]+\.[0-9]+$")] | None = Field(
        None,
        description="the CUDA toolkit that llama.cpp is built with, a minor release such as '12.9'; default: the newest whose own"
        " driver is not newer than the host's and that compiles for all of its GPUs",
    )
    cuda_shared_toolkit: bool = Field(
        False,
        description="whether the CUDA hosts that say so share one toolkit and one list of architectures, and so one build: true"
        " or false",
    )
    cuda_minor_version_compatibility: bool = Field(
        False,
        description="whether a toolkit newer than the host's driver is taken, which NVIDIA supports with fewer features within a"
        " major release: true or false",
    )
    cuda_architectures: list[_Architecture] | None = Field(
        None,
        min_length=1,
        description="the CUDA architectures that llama.cpp is compiled for, as CMake names them, e.g. ['61-real', '120a-real'],"
        " never native; default: those of the GPUs",
    )
    cuda_graphs: bool | None = Field(
        None,
        description="whether llama.cpp may use CUDA graphs: true or false; default: it decides by GPU, and uses them from compute"
        " capability 7.0 on",
    )
    build_image: _Image | None = Field(
        None,
        description="with runtime = 'docker', the container image that llama.cpp is built in, Debian's or Ubuntu's or made of"
        " one, by a name that Docker knows there or can pull, also with a digest; default: the one of backend and toolkit",
    )
    runtime_image: _Image | None = Field(
        None,
        description="the container image that llama.cpp runs in, likewise; default: the one of backend and toolkit",
    )
    web_ui: bool = Field(False, description="whether llama-server is built with its web page: true or false")
    cmake_options: dict[
        Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_]+$")], Annotated[str, StringConstraints(pattern=r"^[^\r\n]*$")]
    ] = Field({}, description="CMake options of llama.cpp that override the plan's, a dictionary such as {'GGML_LTO': 'ON'}")
