"""Building a release, getting one from the host that built it, and removing those that are not needed any more."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from hashlib import file_digest
from pathlib import Path

from gevent.lock import BoundedSemaphore
from paramiko import SSHException
from pyinfra import host, state
from pyinfra.api import FunctionCommand, StringCommand, operation
from pyinfra.api.exceptions import PyinfraError
from pyinfra.api.host import Host
from pyinfra.api.state import State

from roles.base.facts import IdentityFact, PathsFact
from roles.base.machine import USER
from roles.base.operations import Commands, long_work, packages, pinned_checkout
from roles.base.remote import HostError, complain, connection_arguments, run, say
from roles.cluster.operations import fails
from roles.cluster.plan import HostPlan
from roles.cluster.state import CURRENT, RELEASES
from roles.llama_cpp import gate, image, recipe
from roles.llama_cpp.container import Program, program
from roles.llama_cpp.facts import ImagesFact, ReleasesFact, StockFact
from roles.llama_cpp.flags import Option, unknown_flags
from roles.llama_cpp.kinds import kind_of
from roles.llama_cpp.manifest import FILE, Manifest

MIB = 1024 * 1024
ROOMY = "/var/tmp"
"""Where an image of several GB may lie for a while; /tmp can be memory."""
TRANSFER_TIMEOUT = 1800
"""Seconds that a command around an archive may take."""


@operation()
def build_tools(plan: HostPlan) -> Commands:
    """Install what a host needs to build its release, unless it has the release or another host builds it."""
    if not plan.builds:
        host.noop(f"{plan.builder} builds for this host")
    elif plan.release in host.get_fact(ReleasesFact):
        host.noop(f"{plan.release} is here")
    else:
        yield from packages._inner(names=list(kind_of(plan).tools(plan)))


@operation()
def built_release(plan: HostPlan, repository: str, jobs: int) -> Commands:
    """Have the release of a host that builds; it gets its name only once it has passed the gate.

    :param repository: see `pinned_checkout`
    :param jobs: how many compilers run at once; 0: as many as there are cores, and memory for
    """
    if not plan.builds:
        host.noop(f"{plan.builder} builds for this host")
        return
    if plan.release in host.get_fact(ReleasesFact):
        host.noop(f"{plan.release} is here")
        return
    yield StringCommand(recipe.stop_builds(but=plan.release))
    yield from pinned_checkout._inner(repository=repository, commit=plan.commit, folder=recipe.SOURCE)
    yield from long_work(f"build-{plan.release}", kind_of(plan).build_script(plan, jobs), recipe.progress(plan.commit))
    yield FunctionCommand(_reporting, (_finish_build, plan), {})


@operation()
def fetched_release(plan: HostPlan) -> Commands:
    """Have the release of a host that does not build: the archive of the host that does, checked by its hash."""
    if plan.builds:
        host.noop("this host builds its release")
    elif plan.release in host.get_fact(ReleasesFact):
        host.noop(f"{plan.release} is here")
    else:
        yield FunctionCommand(_reporting, (_fetch, plan), {})


def usable_program(plan: HostPlan, target: str, options: Sequence[Option]) -> Generator[StringCommand, None, Program | None]:
    """Commands that fail where the planned release is not there or does not know a flag; for operations to `yield from`.

    :param target: llama.cpp's logical name of the program
    :param options: the command line that it is to be started with
    :return: the program; None where it cannot be used, or is still to be built
    """
    manifest = host.get_fact(ReleasesFact).get(plan.release)
    if manifest is None:
        # While the run is only prepared, the release may still have to be built.
        if state.is_executing:
            yield fails(f"{host.name}: the release {plan.release} is not there: run again to build it.")
        return None
    unknown = unknown_flags(manifest, target, options)
    if unknown:
        yield fails("\n".join(f"{host.name}: {sentence}" for sentence in unknown))
        return None
    found = program(manifest, target, host.get_fact(IdentityFact) if manifest.image else None)
    if found is None and state.is_executing:
        yield fails(f"{host.name}: it has no user {USER}, whom the container is to run as: run deploys/prepare.py.")
    return found


@operation()
def only_releases(keep: Callable[[], frozenset[str]]) -> Commands:
    """Remove every release, image, archive and unfinished build but those to keep; what is in use stays in any case.

    Call it when every release that is wanted is there: a build that still runs then is of one that is not wanted any more.

    :param keep: gives the names of the releases to keep, at the time when it is asked
    """
    kept = keep()
    stock, images = host.get_fact(StockFact), host.get_fact(ImagesFact)
    superfluous, images = recipe.superfluous(stock, kept), image.superfluous(images, kept)
    if superfluous or images:
        yield StringCommand(recipe.stop_builds())
    if superfluous:
        yield StringCommand(f"rm -rf {shlex.join(superfluous)}")
    if images:
        yield StringCommand(image.removal(images))
    host.noop("nothing is left over")


@operation()
def nothing() -> Commands:
    """Have no release, image, archive or build; what still builds is stopped."""
    there = host.get_fact(PathsFact, paths=[RELEASES, recipe.ARCHIVES, CURRENT, recipe.ROOT])
    images = host.get_fact(ImagesFact)
    images = image.superfluous(images, keep=())
    if there or images:
        yield StringCommand(recipe.stop_builds())
    if there:
        yield StringCommand(f"rm -rf --one-file-system {shlex.join(there)}")
    if images:
        yield StringCommand(image.removal(images))
    host.noop("there is none")


def _reporting(state: State, host: Host, work: Callable[[State, Host, HostPlan], None], plan: HostPlan) -> bool:
    """Do something on a host while the deploy runs; what is wrong is said, one sentence a line."""
    try:
        work(state, host, plan)
    except HostError as error:
        for sentence in str(error).splitlines():
            complain(host, sentence)
        return False
    return True


def _finish_build(state: State, host: Host, plan: HostPlan) -> None:
    examination = _pass_gate(state, host, plan)
    about = _about_build(state, host, plan)
    if about["unknown"]:
        say(host, f"note: {plan.commit[:12]} does not know the options {about['unknown']}, so they had no effect")
    profile = plan.profile
    manifest = Manifest(
        release=plan.release,
        commit=plan.commit,
        system=profile.system,
        cpu_level=profile.cpu_level,
        backend=profile.backend,
        targets=profile.targets,
        options=dict(profile.options),
        compiler=about["compiler"],
        builder=host.name,
        built_at=about["built_at"],
        programs=examination.programs(profile.targets),
        flags=examination.flags(profile.targets),
        files=examination.files,
        archive_sha256=about["archive"],
        image=examination.image,
    )
    _give_name(state, host, plan, manifest)
    _must(state, host, f"rm -rf {shlex.quote(recipe.build_folder(plan.release))}", "its build folder could not be removed")


def _about_build(state: State, host: Host, plan: HostPlan) -> dict[str, str]:
    lines = _must(
        state,
        host,
        f"""set -e
{kind_of(plan).about(plan)}
echo "built_at $(date -u +%Y-%m-%dT%H:%M:%SZ)" """,
        "what was built could not be read",
    )
    words = dict(line.partition(" ")[::2] for line in lines)
    return {key: words.get(key, "").strip() for key in ("compiler", "archive", "built_at", "unknown")}


def _pass_gate(state: State, host: Host, plan: HostPlan, files: Mapping[str, str] | None = None) -> gate.Examination:
    """
    :param files: the hashes that the files must have; None where they come into being
    """
    answer = _must(state, host, kind_of(plan).examine(plan), f"what is to be {plan.release} could not be examined", timeout=600)
    examination = gate.parse(answer)
    problems = gate.problems(examination, plan.profile.targets, plan.profile.backend, plan.commit)
    if files is not None:
        problems += gate.changed_files(examination, files)
    if problems:
        raise HostError(
            "\n".join(f"{host.name}: {problem}, so {plan.release} is not used; what was in use still is." for problem in problems)
        )
    return examination


def _give_name(state: State, host: Host, plan: HostPlan, manifest: Manifest) -> None:
    """The last step: a release under its own name has its manifest and has passed the gate."""
    partial, final = recipe.partial_folder(plan.release), recipe.release_folder(plan.release)
    _must(
        state,
        host,
        f"""set -e
printf %s {shlex.quote(manifest.to_json())} >{partial}/{FILE}
sync -f {partial}/{FILE}
{kind_of(plan).before_name(plan, manifest.image)}
rm -rf {final}
mv {partial} {final}""",
        f"{final} could not be written",
    )


def _fetch(state: State, host: Host, plan: HostPlan) -> None:
    builder = state.inventory.get_host(plan.builder)
    assert builder is not None, "the plan names hosts of the inventory only"
    manifest = _manifest_of(state, builder, plan)
    archive, digest = _download(state, builder, plan, manifest)
    sent = f"{recipe.archive(plan.release)}.partial"
    _must(state, host, f"mkdir -p {recipe.ARCHIVES}", f"{recipe.ARCHIVES} could not be made")
    say(host, f"sending {plan.release} ({archive.stat().st_size / MIB:.1f} MiB)")
    arguments = connection_arguments(state, host)
    # With sudo it comes to a place that everybody may write to first.
    passing = f"{ROOMY}/gpuquilt-{plan.release}"
    _transfer(
        host, lambda: host.put_file(str(archive), sent, remote_temp_filename=passing, **arguments), f"{sent} could not be written"
    )
    _must(
        state,
        host,
        f"""set -e
[ "$(sha256sum <{sent} | cut -c -64)" = {digest} ] || {{ echo "its hash is wrong" >&2; exit 1; }}
{kind_of(plan).unpack(plan, sent)}""",
        f"the archive of {plan.release} could not be unpacked",
        timeout=TRANSFER_TIMEOUT,
    )
    examination = _pass_gate(state, host, plan, manifest.files)
    # Where Docker keeps images in another way, the same image has another ID: its files decide.
    _give_name(state, host, plan, replace(manifest, image=examination.image))


def _manifest_of(state: State, builder: Host, plan: HostPlan) -> Manifest:
    path = f"{recipe.release_folder(plan.release)}/{FILE}"
    text = _must(state, builder, f"cat {path}", f"there is no {path} to give to other hosts")
    manifest = Manifest.from_json("\n".join(text))
    if manifest is None:
        raise HostError(f"{builder.name}: {path} cannot be read: remove that folder and run again.")
    return manifest


_downloads: dict[str, tuple[Path, str]] = {}
_folders: list[tempfile.TemporaryDirectory[str]] = []
_one_at_a_time = BoundedSemaphore()


def _download(state: State, builder: Host, plan: HostPlan, manifest: Manifest) -> tuple[Path, str]:
    """The archive on this computer and its SHA-256, got once per run however many hosts want it; removed when the run ends."""
    with _one_at_a_time:
        if manifest.release in _downloads:
            return _downloads[manifest.release]
        wanted = manifest.archive_sha256 or _packed(state, builder, plan)
        if not _folders:
            _folders.append(tempfile.TemporaryDirectory(prefix="gpuquilt-", dir=ROOMY))
        path = Path(_folders[0].name) / f"{manifest.release}.tar.zst"
        source = recipe.archive(manifest.release)
        say(builder, f"fetching {manifest.release}")
        # Everybody there may read the archive, so that no second copy has to be made of it with sudo.
        what = f"{source}, which other hosts need, could not be copied to {path.parent} of this computer"
        _transfer(builder, lambda: builder.get_file(source, str(path)), what)
        with path.open("rb") as content:
            digest = file_digest(content, "sha256").hexdigest()
        if digest != wanted:
            raise HostError(
                f"{builder.name}: {source} is not the archive that the manifest of {manifest.release} names:"
                f" remove {recipe.release_folder(manifest.release)} there and run again."
            )
        _downloads[manifest.release] = path, digest
        return path, digest


def _packed(state: State, builder: Host, plan: HostPlan) -> str:
    """The SHA-256 of an image's archive on the host that built it, which is made when the first host asks for it."""
    say(builder, f"packing {plan.release}")
    return _must(state, builder, image.pack(plan), f"{plan.release} could not be packed for other hosts", TRANSFER_TIMEOUT)[-1]


def _transfer(host: Host, transfer: Callable[[], bool], what: str) -> None:
    try:
        done = transfer()
    except (OSError, SSHException, PyinfraError) as error:
        raise HostError(f"{host.name}: {what} ({error or type(error).__name__}): see to it, then run again.") from error
    if not done:
        raise HostError(f"{host.name}: {what}: see to it, then run again.")


def _must(state: State, host: Host, command: str, what: str, timeout: int = 60) -> list[str]:
    """The output of a command that has to succeed.

    :param what: says what is wrong if it does not
    """
    answer = run(state, host, command, timeout=timeout)
    if not answer.ok:
        reason = answer.errors[-1] if answer.errors else "no reason was given"
        raise HostError(f"{host.name}: {what} ({reason}): see to it, then run again.")
    return answer.output
