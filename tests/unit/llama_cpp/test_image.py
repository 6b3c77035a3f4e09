"""The script that builds an image, run for real with a stand-in for Docker; and what is read of Docker's answers."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from roles.base.operations import WORK
from roles.cluster.dockerfile import dockerfile, with_recipe
from roles.cluster.plan import HostPlan, Plan
from roles.gpus.catalog import Backend
from roles.llama_cpp import gate, image, recipe
from roles.llama_cpp.facts import ReleasesFact, RoomFact
from roles.llama_cpp.kinds import kind_of
from roles.llama_cpp.recipe import Room
from tests.unit.cluster.examples import NEWER, good_plan
from tests.unit.llama_cpp import docker
from tests.unit.llama_cpp.examples import NEWER as BUILT
from tests.unit.llama_cpp.examples import examination, manifest

ID = f"sha256:{'a' * 64}"
BASES = ("mine@sha256:1", "base:1")


def image_plan(backend: Backend = "cpu") -> Plan:
    """Both workers run the same image."""
    plan = good_plan()
    hosts = dict(plan.hosts)
    for name in ("w1", "w2"):
        profile = replace(hosts[name].profile, system="docker", backend=backend, image=BASES[0], runtime_image=BASES[1])
        profile = with_recipe(profile)
        hosts[name] = replace(hosts[name], profile=profile, release=f"{NEWER[:12]}-{profile.name}", runtime="docker")
    return replace(plan, hosts=hosts)


PLAN = image_plan()
W1, W2 = PLAN.hosts["w1"], PLAN.hosts["w2"]


@dataclass
class Tried:
    """What a run of the script did."""

    status: int
    log: list[str]
    folder: Path
    told: list[str]

    def path(self, there: str) -> Path:
        """Where a path of the host is in this try."""
        return self.folder / there.lstrip("/")


Try = Callable[..., Tried]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """What the stand-in has: the images to build from, and what it will build."""
    state = docker.put(tmp_path)
    for number, base in enumerate(BASES):
        docker.make_image(state / "images" / base, base, str(number))
    docker.make_image(state / "built", ID, NEWER)
    return state


@pytest.fixture
def attempt(tmp_path: Path, state: Path) -> Try:
    def run(jobs: int = 0) -> Tried:
        script = image.build_script(W1, jobs)
        for path in (recipe.ROOT, recipe.ARCHIVES, recipe.partial_folder(W1.release), WORK):
            script = script.replace(path, f"{tmp_path}{path}")
        log = tmp_path / WORK.lstrip("/") / f"{recipe.UNIT}{W1.release}" / "log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("w") as file:
            environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "DOCKER_STATE": str(state)}
            ended = subprocess.run(["sh", "-c", script], env=environment, stdout=file, stderr=subprocess.STDOUT)
        return Tried(ended.returncode, log.read_text().splitlines(), tmp_path, (state / "told").read_text().splitlines())

    return run


def test_the_dockerfile_of_the_release_is_built_under_its_partial_name(attempt: Try) -> None:
    tried = attempt()
    assert tried.status == 0, tried.log
    kept = tried.path(recipe.partial_folder(W1.release))
    assert [path.name for path in kept.iterdir()] == ["Dockerfile"]
    assert (kept / "Dockerfile").read_text() == dockerfile(W1.profile, W1.commit, W1.release)
    build = tried.path(recipe.build_folder(W1.release))
    assert tried.told[-1] == (
        f"build --progress=plain --file {build}/Dockerfile --tag gpuquilt/llama.cpp:{W1.release}.partial"
        f" {tried.path(recipe.SOURCE)}"
    )
    assert (build / "Dockerfile.dockerignore").exists()
    assert (tried.folder / "state" / "built_by").read_text() == "default 1"


def test_the_jobs_of_the_inventory_reach_the_dockerfile(attempt: Try) -> None:
    assert " --build-arg JOBS=3 " in attempt(jobs=3).told[-1]


def test_an_archive_of_the_same_name_is_another_images(attempt: Try, tmp_path: Path) -> None:
    archive = tmp_path / recipe.archive(W1.release).lstrip("/")
    archive.parent.mkdir(parents=True)
    archive.write_text("another")
    assert attempt().status == 0
    assert not archive.exists()


def says(tried: Tried, sentence: str) -> None:
    """It ended with the status that promises a sentence, and left no release."""
    assert (tried.status, tried.log[-1]) == (3, sentence)
    assert not tried.path(recipe.partial_folder(W1.release)).exists()


@pytest.mark.parametrize(
    ("base", "setting", "use"), [(BASES[0], "build_image", "is built in"), (BASES[1], "runtime_image", "runs in")]
)
def test_a_base_image_that_cannot_be_had_is_said(attempt: Try, state: Path, base: str, setting: str, use: str) -> None:
    (state / "images" / base).rename(state / "away")
    says(
        attempt(),
        f"w1: {base}, the image that llama.cpp {use}, is not here and cannot be pulled"
        f" (Error response from daemon: pull access denied for {base}): log root in at its registry there (docker login), set"
        f" `{setting}` to one that can, or make one under this name there (docker build, docker import).",
    )


def test_what_the_build_says_is_said_with_the_hosts_name(attempt: Try, state: Path) -> None:
    (state / "built").rename(state / "away")
    sentence = "llama.cpp 222222222222 has no program rpc-server: pin another commit."
    (state / "says").write_text(f"#9 0.123 building\n#9 0.345 gpuquilt: {sentence}\n#9 ERROR: x\n0.345 gpuquilt: {sentence}\n")
    says(attempt(), f"w1: {sentence}")


def test_a_failing_build_ends_with_what_the_step_said(attempt: Try, state: Path) -> None:
    (state / "built").rename(state / "away")
    (state / "says").write_text("#9 0.345 x.cpp:1: error: gpuquilt: no\n#9 ERROR: x\n" + "  16 | >>> RUN x\n" * 30)
    tried = attempt()
    assert tried.status == 1
    assert tried.log[-3:] == ["ERROR: failed to solve", "x.cpp:1: error: gpuquilt: no", "ERROR: failed to solve"]


def test_a_docker_that_does_not_answer_is_said(attempt: Try, state: Path) -> None:
    (state / "dead").touch()
    says(
        attempt(),
        "w1: Docker does not answer (Cannot connect to the Docker daemon): see to it with systemctl status docker,"
        " then run again.",
    )


def test_progress_of_a_build_by_docker_is_a_sentence() -> None:
    read = recipe.progress(NEWER)
    name = "llama.cpp 222222222222"
    assert read("pulling base:1") == f"{name}: pulling base:1"
    read = recipe.progress(NEWER)
    assert read("#5 12.3 Get:4 http://x trixie/main") == f"{name}: preparing the images"
    assert read("#9 0.512 configuring") == f"{name}: configuring"
    assert read("#9 34.56 [ 42%] Building CXX object src/x.cpp.o") == f"{name}: 42 % built"
    assert read("#9 34.60    42 |     warning: something") == f"{name}: 42 % built"


def test_a_release_is_there_with_the_very_image_of_its_manifest_alone() -> None:
    there = replace(manifest(), image=ID, archive_sha256="")

    def found(*lines: str) -> list[str]:
        return list(ReleasesFact().process([f"::gpuquilt release {there.release}", *there.to_json().splitlines(), *lines]))

    assert found(f"::gpuquilt image {ID} {there.commit}") == [there.release]
    assert found() == []
    assert found(f"::gpuquilt image sha256:{'b' * 64} {there.commit}") == []
    assert found(f"::gpuquilt image {ID} {'1' * 40}") == []
    assert found(f"::gpuquilt image {ID}") == []


def test_the_image_of_one_release_does_not_stand_for_another() -> None:
    first = replace(manifest(), image=ID)
    second = replace(first, release="another")
    lines = []
    for there in (first, second):
        lines += [f"::gpuquilt release {there.release}", *there.to_json().splitlines()]
    assert list(ReleasesFact().process([*lines, f"::gpuquilt image {ID} {first.commit}"])) == ["another"]


@pytest.mark.parametrize(("revision", "says"), [("1" * 40, "1" * 40), ("", "with nothing")])
def test_an_image_of_another_commit_does_not_pass(revision: str, says: str) -> None:
    seen = gate.parse([f"::gpuquilt image {ID} {revision}", *examination("rpc-server", "ggml-rpc-server", BUILT)])
    assert seen.image == ID
    assert gate.problems(seen, ["rpc-server"], "cpu", BUILT) == [
        f"its image is labelled {says} and not with the commit 0c1e57098bba"
    ]
    assert gate.problems(replace(seen, revision=BUILT), ["rpc-server"], "cpu", BUILT) == []


def test_what_is_examined_gets_the_devices_that_the_host_has() -> None:
    command = image.examine(replace(W1, devices=("nvidia.com/gpu=all", "/dev/dri")))
    assert 'grep -qs nvidia.com/gpu /etc/cdi/* /run/cdi/* && set -- "$@" --device nvidia.com/gpu=all' in command
    assert '[ -e /dev/dri ] && set -- "$@" --device /dev/dri' in command
    assert "--device" not in image.examine(W1)
    # The group of the files of GPUs is another one on each host.
    assert "--user 0:0 --userns host" in command


def test_images_in_use_and_others_names_are_left_alone() -> None:
    lines = [
        "used sha256:1",
        "sha256:1 gpuquilt/llama.cpp:running",
        "sha256:2 gpuquilt/llama.cpp:old",
        "sha256:3 gpuquilt/llama.cpp:old.partial",
        "sha256:4 sha256:4",
        "sha256:5 gpuquilt/llama.cpp:<none>",
        "",
    ]
    unused = image.unused(lines)
    assert unused == ["gpuquilt/llama.cpp:old", "gpuquilt/llama.cpp:old.partial", "sha256:4"]
    assert image.superfluous(unused, {"old"}) == ["gpuquilt/llama.cpp:old.partial", "sha256:4"]


def test_room_is_dockers() -> None:
    assert RoomFact().process(["100 2000 1500 /srv/my docker"]) == Room(100, 2000, 1500, "/srv/my docker")
    assert RoomFact().process(["100 2000"]) == Room(100, 2000, 0)
    assert image.problems_of_space(W1, Room(100, 2000, 1500, "/srv/docker")) == [
        "/srv/docker has 2000 MiB free, and building the image needs 2596 MiB: free some space there.",
        "/opt has 100 MiB free, and a release needs 512 MiB: free some space there.",
    ]
    assert image.problems_of_space(W1, Room(1000, 2600, 1500, "/srv/docker")) == []
    assert image.problems_of_space(W2, Room(1000, 1000, 0, "/srv/docker")) == [
        "/srv/docker has 1000 MiB free, and the image needs 1024 MiB: free some space there.",
        "/opt has 1000 MiB free, and its archive needs 1024 MiB: free some space there.",
    ]


@pytest.mark.parametrize("backend", ["cpu", "vulkan", "cuda", "sycl", "hip"])
def test_every_backend_has_its_space(backend: Backend) -> None:
    assert image.BUILD_SPACE[backend] > image.SPACE[backend] > recipe.RELEASE_SPACE


def test_the_profile_alone_tells_the_kind() -> None:
    native: HostPlan = good_plan().hosts["w1"]
    assert (kind_of(native).tools(native), kind_of(W1).tools(W1)) == (recipe.tools(native), image.TOOLS)
    assert "cmake" not in image.TOOLS
