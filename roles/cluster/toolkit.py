"""What llama.cpp is compiled with and for: toolkit, images, architectures, CUDA graphs. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from roles.cluster.backend import titles, unfit
from roles.cluster.remarks import Remarks
from roles.cluster.settings import Settings
from roles.gpus.catalog import Backend, Catalog, Images, Toolkit, numbers
from roles.gpus.gpu import Gpu

GRAPHS_FROM = "7.0"
"""llama.cpp uses CUDA graphs from this compute capability on (ggml/src/ggml-cuda/ggml-cuda.cu, GGML_CUDA_CC_VOLTA)."""

IMAGES = ("build_image", "runtime_image")
"""The settings that name container images."""

_TAG = re.compile(r"cuda:([0-9]+\.[0-9]+)")
_ARCHITECTURE = re.compile(r"(?P<major>[0-9]+)(?P<minor>[0-9])(?P<only>[af]?)(?P<kind>-real|-virtual)?")


@dataclass(frozen=True)
class ComputePlan:
    """What llama.cpp is compiled with and for on one host.

    :param toolkit: CUDA's minor release, e.g. 12.9; None for another backend
    :param build_image: container image with the compiler
    :param runtime_image: the same without it
    :param architectures: what is compiled for: ``61-real`` (CUDA) or ``gfx1100`` (HIP); empty where a backend needs no list
    :param cuda_graphs: whether llama.cpp uses CUDA graphs, on those GPUs that can; None for another backend
    :param environment: variables that llama.cpp is to run with here; those of the inventory win
    """

    backend: Backend
    toolkit: str | None
    build_image: str
    runtime_image: str
    architectures: tuple[str, ...] = ()
    cuda_graphs: bool | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Computing:
    """What the choice rests on, for one host.

    :param driver: version of the driver that the host has or is to have; empty where nobody knows
    """

    backend: Backend
    gpus: Sequence[Gpu]
    driver: str
    settings: Settings

    @property
    def capabilities(self) -> set[str]:
        return {gpu.compute_capability for gpu in self.gpus if gpu.compute_capability}


def plan_compute(hosts: Mapping[str, Computing], catalog: Catalog, remarks: Mapping[str, Remarks]) -> dict[str, ComputePlan]:
    """For every host; one that is refused is left out.

    :param remarks: host → what is to be said of it
    """
    shared = [host for host in hosts.values() if host.backend == "cuda" and host.settings.cuda_shared_toolkit]
    plans = {}
    for name, host in hosts.items():
        if host.backend == "cuda":
            group = shared if host.settings.cuda_shared_toolkit else [host]
            plan = _cuda(host, group, catalog, remarks[name])
        else:
            plan = _other(host, catalog, remarks[name])
        if plan is not None:
            plans[name] = plan
    return plans


def architecture(capability: str) -> str:
    """What CMake calls the code for a compute capability, e.g. 6.1 → ``61-real``.

    llama.cpp makes ``12Xa`` of ``12X`` (ggml/src/ggml-cuda/CMakeLists.txt): named so here, the list says what is compiled.
    """
    return capability.replace(".", "") + ("a" if capability.startswith("12.") else "") + "-real"


def graphs(plan: ComputePlan, gpu: Gpu) -> bool:
    """Whether llama.cpp uses CUDA graphs on a GPU."""
    return bool(plan.cuda_graphs) and _can_graphs(gpu)


def _other(host: Computing, catalog: Catalog, remarks: Remarks) -> ComputePlan:
    images = catalog.images[host.backend]
    build, runtime = _images(host.settings, images, images, remarks)
    targets = sorted({gpu.gfx_target for gpu in host.gpus if gpu.gfx_target}) if host.backend == "hip" else []
    if strange := unfit(host.gpus, host.backend, host.settings, catalog):
        remarks.warnings.append(
            f"{runtime} and what is installed there are older than {titles(strange)}: set `runtime_image` and `build_image` to"
            ' images of a later release, or backend = "vulkan".'
        )
    return ComputePlan(host.backend, None, build, runtime, tuple(targets), environment=_environment(host))


def _environment(host: Computing) -> dict[str, str]:
    """Source: llama.cpp 0c1e570, ggml-cuda.cu (that it is there is enough), docs/backend/SYCL.md, ggml-vulkan.cpp."""
    if host.backend == "cuda":
        # By itself CUDA begins with the fastest GPU, and everything else counts by the address.
        order = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
        return order | ({"GGML_CUDA_DISABLE_GRAPHS": "1"} if host.settings.cuda_graphs is False else {})
    if host.backend == "sycl":
        # To see how much memory is free, and to use more than 4 GiB at once.
        return {"ZES_ENABLE_SYSMAN": "1", "UR_L0_ENABLE_RELAXED_ALLOCATION_LIMITS": "1"}
    if host.backend == "vulkan" and not host.gpus:
        # By itself llama.cpp leaves out a device that is a processor.
        return {"GGML_VK_VISIBLE_DEVICES": "0"}
    return {}


def _cuda(host: Computing, group: Sequence[Computing], catalog: Catalog, remarks: Remarks) -> ComputePlan | None:
    automatic = _newest(group, catalog)
    asked = _asked(host.settings, remarks)
    name = asked or automatic
    if name is None:
        remarks.refusals.append(_no_toolkit(host, group, catalog))
        return None
    if name not in catalog.toolkits:
        known = ", ".join(catalog.toolkits)
        remarks.refusals.append(f"the catalog knows no CUDA toolkit {name} (it has {known}): choose one of these.")
        return None
    toolkit = catalog.toolkits[name]
    if asked is None and host.settings.runtime == "docker":
        _check_known(host.settings, remarks)
    own = _newest([host], catalog)
    if host.settings.cuda_toolkit is not None:
        remarks.override("cuda_toolkit", host.settings.cuda_toolkit, automatic)
    elif host.settings.cuda_shared_toolkit and own != automatic:
        remarks.choices.append(f"cuda_shared_toolkit = True from the inventory: CUDA {automatic} in place of {own}")
    architectures = _architectures(host, group, remarks)
    _check_age(host, name, toolkit, automatic, remarks)
    _check_architectures(host, name, toolkit, architectures, automatic, remarks)
    instead = catalog.toolkits.get(host.settings.cuda_toolkit or automatic or name, toolkit)
    build, runtime = _images(host.settings, toolkit, instead, remarks)
    return ComputePlan("cuda", name, build, runtime, architectures, _graphs(host, remarks), _environment(host))


def _newest(group: Iterable[Computing], catalog: Catalog) -> str | None:
    """The newest toolkit that is not newer than any driver of the group and compiles for all of its GPUs."""
    fitting = [
        name
        for name, toolkit in catalog.toolkits.items()
        if all(
            numbers(toolkit.driver) <= numbers(host.driver) and host.capabilities <= set(toolkit.capabilities) for host in group
        )
    ]
    return max(fitting, key=numbers, default=None)


def _asked(settings: Settings, remarks: Remarks) -> str | None:
    """The toolkit that the inventory names, by itself or in an image."""
    found = set(_named(settings).values())
    if settings.cuda_toolkit is not None:
        found.add(settings.cuda_toolkit)
    if len(found) > 1:
        names = " and ".join(sorted(found, key=numbers))
        remarks.refusals.append(
            f"CUDA {names} are named by `cuda_toolkit`, `build_image` and `runtime_image`: name one toolkit in all of them."
        )
    return max(found, key=numbers, default=None)


def _named(settings: Settings) -> dict[str, str]:
    """Setting → the toolkit that its image's tag names; nothing on a host without containers, which has no use for images."""
    images = {key: getattr(settings, key) or "" for key in IMAGES if settings.runtime == "docker"}
    return {key: match[1] for key, image in images.items() if (match := _TAG.search(image))}


def _title(name: str, settings: Settings) -> str:
    """A toolkit in a sentence, with the settings whose images hold it."""
    keys = " and ".join(f"`{key}`" for key in _named(settings))
    return f"CUDA {name} of {keys}" if keys else f"CUDA {name}"


def _check_known(settings: Settings, remarks: Remarks) -> None:
    """What an image holds decides about driver and architectures, so it must be known of one that is not ours."""
    for key in IMAGES:
        if image := getattr(settings, key):
            remarks.refusals.append(
                f"{key} = {image!r} does not say by its name which CUDA toolkit it holds: set `cuda_toolkit` to that one."
            )


def _no_toolkit(host: Computing, group: Sequence[Computing], catalog: Catalog) -> str:
    if len(group) > 1 and _newest([host], catalog):
        return (
            f"no one CUDA toolkit compiles for the GPUs of all hosts with `cuda_shared_toolkit` and suits their drivers (here"
            f" {host.driver}): take it out for this host, which then gets a toolkit of its own."
        )
    return (
        f"no CUDA toolkit compiles for {titles(host.gpus)} and is as old as its driver {host.driver or '(unknown)'}: let `driver`"
        " choose a newer one, or set `cuda_toolkit`."
    )


def _check_age(host: Computing, name: str, toolkit: Toolkit, automatic: str | None, remarks: Remarks) -> None:
    """A toolkit that is newer than the driver runs only by minor version compatibility, and only if the user insists."""
    if not host.driver or numbers(toolkit.driver) <= numbers(host.driver):
        return
    newer = f"{_title(name, host.settings)} was made with NVIDIA driver {toolkit.driver}, and this host's is {host.driver}"
    older = f"choose CUDA {automatic}" if automatic else "choose an older toolkit"
    compatible = numbers(host.driver)[0] >= toolkit.lowest_driver
    if compatible and host.settings.cuda_minor_version_compatibility:
        remarks.choices.append(f"cuda_minor_version_compatibility = True from the inventory: {newer}")
    elif compatible:
        remarks.refusals.append(f"{newer}: {older}, or a newer driver, or insist with `cuda_minor_version_compatibility = True`.")
    else:
        remarks.refusals.append(f"{newer}, which is older than its floor {toolkit.lowest_driver}: {older}, or a newer driver.")


def _architectures(host: Computing, group: Sequence[Computing], remarks: Remarks) -> tuple[str, ...]:
    capabilities = sorted({capability for member in group for capability in member.capabilities}, key=numbers)
    automatic = tuple(architecture(capability) for capability in capabilities)
    if host.settings.cuda_architectures is None:
        return automatic
    asked = tuple(host.settings.cuda_architectures)
    remarks.override("cuda_architectures", ";".join(asked), "" if asked == automatic else ";".join(automatic))
    return asked


def _check_architectures(
    host: Computing, name: str, toolkit: Toolkit, architectures: Iterable[str], automatic: str | None, remarks: Remarks
) -> None:
    """What the toolkit cannot compile, and GPUs that would find no code, or only code that their driver has to compile."""
    parsed = [match for text in architectures if (match := _ARCHITECTURE.fullmatch(text))]
    alien = [match[0] for match in parsed if f"{match['major']}.{match['minor']}" not in toolkit.capabilities]
    if alien:
        way = f"choose CUDA {automatic}" if automatic and automatic != name else "correct `cuda_architectures`"
        remarks.refusals.append(
            f"{_title(name, host.settings)} does not compile for {', '.join(alien)}: {way}, or leave both to the GPUs."
        )
    for gpu in host.gpus:
        if any(_is_code_for(match, gpu) for match in parsed):
            continue
        capability = f"{titles([gpu])} (compute capability {gpu.compute_capability})"
        if any(_is_ptx_for(match, gpu) for match in parsed):
            ptx = f"the architectures hold nothing but PTX for {capability}, which the driver compiles when llama.cpp starts"
            add = f"add {architecture(gpu.compute_capability or '')} to `cuda_architectures`"
            if host.driver and numbers(host.driver) < numbers(toolkit.driver):
                remarks.refusals.append(
                    f"{ptx}, and NVIDIA driver {host.driver} cannot, since it is older than CUDA {name}: {add}."
                )
            else:
                remarks.warnings.append(f"{ptx}: it fails with a driver that is older than CUDA {name}; {add}.")
        else:
            remarks.refusals.append(
                f"the architectures hold no code for {capability}: add {architecture(gpu.compute_capability or '')} to"
                " `cuda_architectures`, or leave it out."
            )


def _is_code_for(match: re.Match[str], gpu: Gpu) -> bool:
    """Machine code runs on its own major version, from its minor version on; with a suffix, on this very one."""
    major, minor = numbers(gpu.compute_capability or "0.0")
    if match["kind"] == "-virtual" or int(match["major"]) != major:
        return False
    return int(match["minor"]) == minor if match["only"] else int(match["minor"]) <= minor


def _is_ptx_for(match: re.Match[str], gpu: Gpu) -> bool:
    """PTX is compiled for every newer capability; with a suffix, for this very one."""
    code = (int(match["major"]), int(match["minor"]))
    capability = numbers(gpu.compute_capability or "0.0")
    return match["kind"] != "-real" and (code == capability if match["only"] else code <= capability)


def _images(settings: Settings, chosen: Images | Toolkit, instead: Images | Toolkit, remarks: Remarks) -> tuple[str, str]:
    """The images to build and to run in.

    :param instead: has those that would be taken without the settings
    """
    if settings.runtime != "docker":
        return chosen.build_image, chosen.runtime_image
    for key in IMAGES:
        if getattr(settings, key) is not None:
            remarks.override(key, getattr(settings, key), getattr(instead, key))
    return settings.build_image or chosen.build_image, settings.runtime_image or chosen.runtime_image


def _graphs(host: Computing, remarks: Remarks) -> bool:
    automatic = any(_can_graphs(gpu) for gpu in host.gpus)
    wish = host.settings.cuda_graphs
    if wish is not None:
        remarks.override("cuda_graphs", wish, automatic)
    if wish and not automatic:
        remarks.warnings.append(
            f"cuda_graphs = True has no effect: llama.cpp uses CUDA graphs from compute capability {GRAPHS_FROM} on, so leave it"
            " out."
        )
    return automatic and wish is not False


def _can_graphs(gpu: Gpu) -> bool:
    return numbers(gpu.compute_capability or "") >= numbers(GRAPHS_FROM)
