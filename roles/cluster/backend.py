"""What a host computes with: its backend, and which of its GPUs. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from roles.cluster.passthrough import VFIO, Passthrough
from roles.cluster.remarks import Remarks
from roles.cluster.settings import Settings
from roles.gpus.catalog import Backend, Catalog
from roles.gpus.gpu import Gpu, declared
from roles.gpus.link import Verdict

BOUND = f"passed through to a virtual machine (bound to {VFIO})"
TO_BE_BOUND = "to be passed through to a virtual machine"
UNREACHABLE = "unreachable"
CPU: Backend = "cpu"
NATIVE: dict[str, Backend] = {"nvidia": "cuda", "amd": "hip", "intel": "sycl"}
"""Vendor → the backend that is made for its GPUs; where GPUs of several compute, the first one decides."""


@dataclass(frozen=True)
class LeftOut:
    """A GPU that is there and does not compute for the cluster on this host.

    :param reason: why, in words that can follow its name
    """

    gpu: Gpu
    reason: str


@dataclass(frozen=True)
class Selection:
    """What a host computes with.

    :param gpus: the GPUs that compute; those that were declared and not seen come last
    :param left_out: the others
    """

    backend: Backend
    gpus: tuple[Gpu, ...]
    left_out: tuple[LeftOut, ...]

    @property
    def seen(self) -> tuple[Gpu, ...]:
        """Those of the GPUs that are there."""
        return tuple(gpu for gpu in self.gpus if gpu.address)


@dataclass(frozen=True)
class Lender:
    """The hypervisor that a host is a virtual machine of.

    :param gpus: its GPUs that belong to virtual machines, or are to
    """

    name: str
    gpus: tuple[Gpu, ...] = ()


def lent(seen: Iterable[Gpu], settings: Settings) -> tuple[Gpu, ...]:
    """The GPUs of a host that belong to its virtual machines, or are to."""
    return tuple(gpu for gpu in seen if gpu.driver == VFIO or gpu.address in settings.passthrough)


def devices(selection: Selection) -> tuple[str, ...]:
    """What a container needs to compute with the GPUs, as `docker run --device` names it.

    Source: docs.docker.com (CDI, which brings the driver's libraries and /dev/dri of NVIDIA's GPUs, too), rocm.docs.amd.com.
    """
    vendors = {gpu.vendor for gpu in selection.gpus}
    return (
        *(["nvidia.com/gpu=all"] if "nvidia" in vendors else []),
        *(["/dev/kfd"] if selection.backend == "hip" else []),
        *(["/dev/dri"] if vendors - {"nvidia"} else []),
    )


def names(selection: Selection) -> tuple[str, ...]:
    """What llama.cpp calls the GPUs: a worker that names them ends while one is missing, in place of lending the processors.

    Empty where that is not certain: with another backend, or where CUDA may see a GPU that is not to compute.
    Source: ggml-cuda.cu and get_devices of tools/rpc/rpc-server.cpp, the same from e3a74b2 to 0c1e570.
    """
    others = [out for out in selection.left_out if out.gpu.vendor == "nvidia" and out.reason not in (BOUND, TO_BE_BOUND)]
    if selection.backend != "cuda" or others:
        return ()
    return tuple(f"CUDA{number}" for number in range(len(selection.seen)))


def title(gpu: Gpu) -> str:
    """A GPU in a sentence: its address and its name, as far as they are known."""
    name = gpu.name or f"{gpu.generation or gpu.vendor} GPU"
    if gpu.chip is None and gpu.device_id and gpu.device_id not in name:
        name += f" [{gpu.device_id}]"
    return f"{gpu.address} {name}" if gpu.address else name


def titles(gpus: Iterable[Gpu]) -> str:
    """Several of them in a sentence."""
    return " and ".join(dict.fromkeys(title(gpu) for gpu in gpus))


def select(
    seen: Sequence[Gpu],
    passing: Passthrough,
    settings: Settings,
    works: bool,
    system: str,
    catalog: Catalog,
    remarks: Remarks,
    lender: Lender | None = None,
) -> Selection:
    """Choose backend and GPUs of a host.

    :param seen: its GPUs
    :param passing: which of them belong to its virtual machines
    :param works: it is a worker; other hosts compute with their processors, unless `backend` is set
    :param system: its distribution and release, a key of the catalog if that knows it
    :param lender: what it is a virtual machine of, as far as that is known
    """
    own, left_out = _divide(seen, passing)
    own = _with_declared(own, left_out, settings, catalog, remarks, lender)
    _say_links(seen, own, works, remarks)
    dead = [gpu for gpu in own if gpu.link and gpu.link.verdict == Verdict.UNREACHABLE]
    able, unable = _known([gpu for gpu in own if gpu not in dead], catalog, remarks if works else Remarks())
    left_out += [LeftOut(gpu, UNREACHABLE) for gpu in dead] + unable
    native, compromise = _native(able, settings, system, catalog) if works else (CPU, "")
    backend = native if settings.backend == "auto" else settings.backend
    if settings.backend != "auto":
        remarks.override("backend", settings.backend, native)
    elif compromise:
        remarks.choices.append(compromise)
    gpus = _computing(able, backend, settings, catalog)
    left_out += [LeftOut(gpu, _why_not(gpu, backend, works)) for gpu in able if gpu not in gpus]
    software = backend == "vulkan" and settings.vulkan_software
    if settings.vulkan_software and gpus:
        remarks.warnings.append(f"vulkan_software = True has no effect: {titles(gpus)} computes here, so leave it out.")
    if backend != CPU and not gpus and not dead and not software:
        remarks.refusals.append(_nothing_for(backend, [*able, *(out.gpu for out in unable)]))
    elif works and settings.backend == "auto" and not gpus:
        remarks.refusals += _nothing_but(unable)
        remarks.warnings += _all_away(left_out)
    return Selection(backend, gpus, tuple(sorted(left_out, key=lambda out: out.gpu.address or "")))


def _divide(seen: Sequence[Gpu], passing: Passthrough) -> tuple[list[Gpu], list[LeftOut]]:
    """The host's own GPUs, and those that belong to its virtual machines."""
    own: list[Gpu] = []
    left_out: list[LeftOut] = []
    to_be_bound = {function.address for function in passing.functions}
    for gpu in seen:
        # What is given back counts as the host's own at once: the plan must not change with the reboot.
        if gpu.driver == VFIO and gpu.address not in passing.returned:
            left_out.append(LeftOut(gpu, BOUND))
        elif gpu.address in to_be_bound:
            left_out.append(LeftOut(gpu, TO_BE_BOUND))
        else:
            own.append(gpu)
    return own, left_out


def _with_declared(
    own: list[Gpu],
    left_out: Sequence[LeftOut],
    settings: Settings,
    catalog: Catalog,
    remarks: Remarks,
    lender: Lender | None,
) -> list[Gpu]:
    """The host's own GPUs with those that are declared and cannot be seen; each one that was seen answers one declaration."""
    unseen: list[Gpu] = []
    undeclared = list(own)
    away = [out.gpu for out in left_out]
    for text in settings.gpus:
        wanted = declared(text, catalog)
        if found := _match(wanted, undeclared):
            undeclared.remove(found)
        elif found := _match(wanted, away):
            away.remove(found)
            remarks.refusals.append(
                f"{title(found)} is declared in `gpus` and belongs to a virtual machine ({VFIO} or `passthrough`): take it out of"
                " `gpus` of this host, or give it back to the host."
            )
        else:
            unseen.append(wanted)
            remarks.warnings.append(f"{title(wanted)} is declared in `gpus` and is not seen: {_how_to_get(wanted, lender)}.")
    for gpu in undeclared:
        if settings.gpus and gpu.vendor in NATIVE and not gpu.integrated:
            remarks.warnings.append(f"{title(gpu)} is seen and is not declared in `gpus`: add it there, or leave `gpus` out.")
    return own + unseen


def _how_to_get(wanted: Gpu, lender: Lender | None) -> str:
    """How a virtual machine comes by a GPU that is declared for it."""
    if lender is None:
        return "pass it through to this host, or take it out of `gpus`"
    there = " or ".join(gpu.address for gpu in lender.gpus if gpu.address and _is_alike(wanted, gpu))
    if there:
        return f"give this virtual machine the device {there} of {lender.name}, start it, and run again"
    return (
        f"name its address in `passthrough` of {lender.name}, run deploys/hypervisors.py, give the card to this virtual machine,"
        " start it, and run again; or take it out of `gpus`"
    )


def _match(wanted: Gpu, among: Iterable[Gpu]) -> Gpu | None:
    return next((gpu for gpu in among if _is_alike(wanted, gpu)), None)


def _is_alike(wanted: Gpu, gpu: Gpu) -> bool:
    """Compare the most exact thing that is known of both."""
    for key in ("device_id", "chip", "generation"):
        one, other = getattr(wanted, key), getattr(gpu, key)
        if one and other:
            return wanted.vendor == gpu.vendor and bool(one == other)
    return False


def _say_links(seen: Iterable[Gpu], own: Sequence[Gpu], works: bool, remarks: Remarks) -> None:
    for gpu in seen:
        if gpu.link is None:
            continue
        if gpu.link.verdict in (Verdict.NARROW, Verdict.SLOW):
            remarks.warnings.append(f"the link of {title(gpu)} is {gpu.link.verdict}: {gpu.link.reason.rstrip('.')}.")
        elif gpu.link.verdict == Verdict.UNREACHABLE:
            sentence = (
                f"{title(gpu)} is unreachable ({gpu.link.reason.rstrip('.')}): no driver can help; switch the machine off and on"
                " again, its hypervisor too if it is a virtual one, and look at slot and power"
            )
            if gpu in own and works:
                remarks.refusals.append(f"{sentence}, or take the card out.")
            else:
                remarks.warnings.append(f"{sentence}.")


def _known(own: Iterable[Gpu], catalog: Catalog, remarks: Remarks) -> tuple[list[Gpu], list[LeftOut]]:
    """Those that something in the catalog can compute with, and the others."""
    able: list[Gpu] = []
    unable: list[LeftOut] = []
    for gpu in own:
        if gpu.vendor not in NATIVE:
            unable.append(LeftOut(gpu, "no GPU that llama.cpp computes with"))
        elif gpu.generation is None and not gpu.integrated:
            unable.append(LeftOut(gpu, "not in the catalog"))
            remarks.warnings.append(
                f"{title(gpu)} is not in the catalog, so it is left out: add it to roles/gpus/catalog.yaml if it can compute."
            )
        elif gpu.vendor == "nvidia" and not _is_compiled_for(gpu, catalog):
            unable.append(LeftOut(gpu, _unsupported(gpu, catalog)))
        else:
            able.append(gpu)
    return able, unable


def _unsupported(gpu: Gpu, catalog: Catalog) -> str:
    last = catalog.generations[gpu.generation].last_branch if gpu.generation else None
    age = "too old" if last else "not supported yet"
    capability = gpu.compute_capability or "unknown"
    return f"{age}: no CUDA toolkit of the catalog compiles for {gpu.generation} (compute capability {capability})"


def _all_away(left_out: Iterable[LeftOut]) -> list[str]:
    """A hypervisor that was put among the workers by mistake must be told from one that is to lend its processors."""
    away = [out.gpu for out in left_out if out.reason in (BOUND, TO_BE_BOUND)]
    if not away:
        return []
    return [
        f"{titles(away)} belongs to virtual machines, so the processors compute here: take the host out of `workers` if only its"
        ' virtual machines are to work, or set `backend = "cpu"`.'
    ]


def _nothing_for(backend: Backend, gpus: Sequence[Gpu]) -> str:
    has = titles(gpus) or "no GPU of its own"
    software = ", or set `vulkan_software = True` to let the processors compute by Mesa's llvmpipe" if backend == "vulkan" else ""
    return (
        f"backend = {backend!r} has nothing to compute with here (it has {has}): correct `backend`, or leave it out and let the"
        f" GPUs decide{software}."
    )


def _nothing_but(unable: Iterable[LeftOut]) -> list[str]:
    """A GPU that was put there to compute must not end up as a worker that computes with its processors, unsaid."""
    return [
        f'{title(out.gpu)} is {out.reason}: set `backend = "cpu"` to let the processors compute, or take the card out.'
        for out in unable
        if out.gpu.vendor == "nvidia" and out.gpu.generation
    ]


def can(gpu: Gpu, backend: Backend, settings: Settings, catalog: Catalog) -> bool:
    """Whether a backend computes with a GPU."""
    if backend == "cuda":
        return _is_compiled_for(gpu, catalog)
    if backend == "hip" and _has_own_image(settings):
        return gpu.gfx_target is not None
    if backend == "hip":
        return gpu.gfx_target in catalog.images["hip"].gfx_targets
    if backend == "sycl":
        return gpu.vendor == "intel" and gpu.generation is not None
    return backend == "vulkan"


def _is_compiled_for(gpu: Gpu, catalog: Catalog) -> bool:
    return any(gpu.compute_capability in toolkit.capabilities for toolkit in catalog.toolkits.values())


def _has_own_image(settings: Settings) -> bool:
    """What is in it, the user knows."""
    return settings.runtime == "docker" and settings.runtime_image is not None


def _native(able: Sequence[Gpu], settings: Settings, system: str, catalog: Catalog) -> tuple[Backend, str]:
    """The backend that is made for the GPUs; ``cpu`` where there is no GPU with memory of its own.

    :return: the backend, and in words why it is Vulkan in place of a better one, empty where it is not
    """
    for vendor, backend in NATIVE.items():
        mine = [gpu for gpu in able if gpu.vendor == vendor and not gpu.integrated]
        if not mine:
            continue
        known = catalog.distributions.get(system)
        has_packages = backend == "cuda" or (known is not None and backend in known.backends)
        # A container brings them.
        if settings.runtime == "native" and not has_packages:
            return "vulkan", f"vulkan in place of {backend}, for which {known.title if known else system} has no packages"
        strange = [gpu for gpu in mine if not can(gpu, backend, settings, catalog)] or unfit(mine, backend, settings, catalog)
        if strange:
            return "vulkan", f"vulkan in place of {backend}, whose libraries have no code for {titles(strange)}"
        return backend, ""
    return CPU, ""


def unfit(gpus: Iterable[Gpu], backend: Backend, settings: Settings, catalog: Catalog) -> list[Gpu]:
    """Those of the GPUs that what the catalog's image for a backend holds does not drive."""
    if backend == "cuda" or settings.runtime != "docker" or _has_own_image(settings):
        return []
    return [gpu for gpu in gpus if gpu.generation in catalog.images[backend].unfit]


def _computing(able: Sequence[Gpu], backend: Backend, settings: Settings, catalog: Catalog) -> tuple[Gpu, ...]:
    """The GPUs that compute: integrated ones only where there is no other, and where the inventory asks for the backend."""
    found = [gpu for gpu in able if can(gpu, backend, settings, catalog)]
    discrete = tuple(gpu for gpu in found if not gpu.integrated)
    return discrete if discrete or settings.backend == "auto" else tuple(found)


def _why_not(gpu: Gpu, backend: Backend, works: bool) -> str:
    if not works:
        return "this host is no worker"
    if gpu.integrated:
        return "integrated: it has no memory of its own"
    return "the processors compute here" if backend == "cpu" else f"{backend} does not compute with it; vulkan would"
