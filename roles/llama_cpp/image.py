"""A release whose programs lie in a container image; see `kinds.Kind`. Pure.

Its folder holds the manifest, which names the image by its ID, and the Dockerfile. Until it has passed the gate the image has
a tag of its own, by which Docker is asked for its ID: what a build or an archive is called differs between the stores that
Docker keeps images in.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from shlex import join, quote

from roles.base.operations import WORK
from roles.base.templates import render
from roles.base.units import SECONDS
from roles.cluster.dockerfile import LABEL, REVISION, dockerfile
from roles.cluster.plan import HostPlan
from roles.cluster.state import IMAGE, RELEASES
from roles.gpus.catalog import Backend
from roles.llama_cpp import gate
from roles.llama_cpp.manifest import FILE
from roles.llama_cpp.recipe import (
    ARCHIVES,
    FREE,
    RELEASE_SPACE,
    ROOT,
    SOURCE,
    UNIT,
    Room,
    archive,
    build_folder,
    lacking,
    partial_folder,
    release_folder,
)

TOOLS = ("ca-certificates", "git", "openssh-client", "zstd")

OURS = f"{LABEL}release"
"""The label by which an image of ours is known that has no name any more."""

BUILD_SPACE: Mapping[Backend, int] = {"cpu": 4096, "vulkan": 6144, "cuda": 16384, "sycl": 24576, "hip": 40960}
"""MiB that Docker needs for the two images that a release is built from, packages, objects and the compiler cache: estimates.
What makes the difference is the toolkit in the image that it is built in."""
SPACE: Mapping[Backend, int] = {"cpu": 1024, "vulkan": 2048, "cuda": 6144, "sycl": 8192, "hip": 24576}
"""MiB that Docker needs for the finished image alone: estimates."""

# A question to its socket would start it.
_RUNS = "systemctl is-active --quiet docker.service"
# As root, who may open the files of GPUs, which belong to a group whose number is the host's: a program that is compiled for
# SYCL ends without one, whatever it is asked.
_RUN = (
    "docker run --rm --pull never --user 0:0 --userns host --network none --read-only --cap-drop ALL"
    " --security-opt no-new-privileges --log-driver none --entrypoint sh"
)


def tools(plan: HostPlan) -> tuple[str, ...]:
    return TOOLS


def tag(release: str) -> str:
    return f"{IMAGE}:{release}"


def partial_tag(release: str) -> str:
    return f"{IMAGE}:{release}.partial"


def show(mark: str) -> str:
    """The command that shows the image of the release ``$name``, if there is one and Docker runs.

    :param mark: what its line begins with; ID and commit follow
    """
    line = f'{mark}{{{{.Id}}}} {{{{index .Config.Labels "{REVISION}"}}}}'
    return f"{_RUNS} && timeout {SECONDS} docker image inspect --format {quote(line)} {IMAGE}:$name 2>/dev/null"


LIST = f"""
{_RUNS} || exit 0
exec 2>/dev/null
containers=$(timeout {SECONDS} docker ps --all --quiet)
[ -z "$containers" ] || timeout {SECONDS} docker inspect --format 'used {{{{.Image}}}}' $containers
timeout {SECONDS} docker image ls --no-trunc --format '{{{{.ID}}}} {{{{.Repository}}}}:{{{{.Tag}}}}' {IMAGE}
timeout {SECONDS} docker image ls --no-trunc --format '{{{{.ID}}}} {{{{.ID}}}}' --filter dangling=true --filter label={OURS}
true
"""
"""The command that shows the images of ours, by tag, or by ID where they have none, and what containers use."""


def unused(lines: Iterable[str]) -> list[str]:
    """The images of ours that no container uses, from the output of `LIST`."""
    pairs = [line.split() for line in lines if len(line.split()) == 2]
    used = {image for word, image in pairs if word == "used"}
    return sorted({name for image, name in pairs if image != "used" and image not in used and not name.endswith(":<none>")})


def superfluous(images: Iterable[str], keep: Collection[str]) -> list[str]:
    """Those of the images that no release to keep needs.

    :param images: by tag or ID
    :param keep: names of releases
    """
    kept = {tag(release) for release in keep}
    return sorted(image for image in images if image not in kept)


def removal(images: Sequence[str]) -> str:
    """The command that removes images."""
    return f"docker image rm {join(images)}"


def room(plan: HostPlan) -> str:
    bases = join(dict.fromkeys([plan.profile.image, plan.profile.runtime_image]))
    return f"""{_RUNS} && running=yes || running=
ask() {{ [ -n "$running" ] && timeout {SECONDS} docker "$@" 2>/dev/null; }}
# What a Docker has that does not run is not known: a release that is there is no reason to ask for room.
has_image() {{ [ -z "$running" ] || ask image inspect {tag(plan.release)} >/dev/null; }}
[ -e {release_folder(plan.release)}/{FILE} ] && has_image && exit 0
root=$(ask info --format '{{{{.DockerRootDir}}}}')
case $(ask info --format '{{{{.DriverStatus}}}}') in *io.containerd.snapshotter*) root=/var/lib/containerd ;; esac
root=${{root:-/var/lib/docker}}
{FREE}
size=$(ask image inspect --format '{{{{.Size}}}}' {bases} | awk '{{ bytes += $1 }} END {{ printf "%d", bytes / 1048576 }}')
echo "$(free {RELEASES}) $(free "$root") $size $root"
"""


def problems_of_space(plan: HostPlan, room: Room) -> list[str]:
    backend = plan.profile.backend
    if plan.builds:
        needed, what = max(BUILD_SPACE[backend] - room.built, 0), "building the image"
        return lacking([(room.place, room.builds, needed, what), ("/opt", room.releases, RELEASE_SPACE, "a release")])
    # The archive that it comes in lies there beside it.
    return lacking(
        [(room.place, room.builds, SPACE[backend], "the image"), ("/opt", room.releases, SPACE[backend], "its archive")]
    )


def build_script(plan: HostPlan, jobs: int) -> str:
    profile = plan.profile
    return render(
        "build/image.sh.j2",
        release=plan.release,
        host=plan.name,
        jobs=jobs,
        bases=[(profile.image, "build_image", "is built in"), (profile.runtime_image, "runtime_image", "runs in")],
        dockerfile=_dockerfile(plan),
        tag=partial_tag(plan.release),
        root=ROOT,
        source=SOURCE,
        log=f"{WORK}/{UNIT}{plan.release}/log",
        build=build_folder(plan.release),
        partial=partial_folder(plan.release),
        archive=archive(plan.release),
    )


def _dockerfile(plan: HostPlan) -> str:
    return dockerfile(plan.profile, plan.commit, plan.release)


def examine(plan: HostPlan) -> str:
    line = f'{gate.SECTION}image {{{{.Id}}}} {{{{index .Config.Labels "{REVISION}"}}}}'
    devices = "\n".join(f'{_is_there(device)} && set -- "$@" --device {quote(device)}' for device in plan.devices)
    said = f"{partial_folder(plan.release)}/said"
    return f"""docker image inspect --format {quote(line)} {partial_tag(plan.release)} || exit 1
set --
{devices}
if ! {_RUN} "$@" {partial_tag(plan.release)} -c {quote(gate.command(release_folder(plan.release)))} 2>{said}; then
    # Docker's own last line names its help.
    grep -v -e --help -e '^$' {said} >&2
    exit 1
fi
rm {said}"""


def _is_there(device: str) -> str:
    """Whether the host has a device already; Docker would not start a container with one that is still to come."""
    if device.startswith("/"):
        return f"[ -e {quote(device)} ]"
    return f"grep -qs {quote(device.partition('=')[0])} /etc/cdi/* /run/cdi/*"


def about(plan: HostPlan) -> str:
    build = f"{release_folder(plan.release)}/build"
    said = f'echo "compiler $(cat {build}/compiler)"; echo "unknown $(paste -s -d " " {build}/unknown_options)"'
    return f"{_RUN} {partial_tag(plan.release)} -c {quote(said)}"


def pack(plan: HostPlan) -> str:
    """The command that makes the archive, unless it is there, and prints its SHA-256."""
    partial, kept = partial_tag(plan.release), archive(plan.release)
    save = f"set -o pipefail; docker save {partial} | zstd -q -T0 -f -o {kept}.partial"
    return f"""set -e
if ! [ -e {kept} ]; then
    mkdir -p {ARCHIVES}
    docker image tag {tag(plan.release)} {partial}
    nice bash -c {quote(save)}
    docker image rm {partial} >/dev/null
    chmod 644 {kept}.partial
    mv {kept}.partial {kept}
fi
sha256sum <{kept} | cut -c -64"""


def unpack(plan: HostPlan, sent: str) -> str:
    partial = partial_folder(plan.release)
    return f"""rm -rf {partial}
mkdir -p {partial}
printf %s {quote(_dockerfile(plan))} >{partial}/Dockerfile
zstd -dcq {sent} | docker load --quiet >/dev/null
rm {sent}"""


def before_name(plan: HostPlan, image: str) -> str:
    return f"""docker image tag {image} {tag(plan.release)}
docker image rm {partial_tag(plan.release)} >/dev/null"""
