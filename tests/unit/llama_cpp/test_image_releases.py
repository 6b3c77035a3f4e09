"""An image's whole way from the host that built it to others, on folders of this computer and a stand-in for Docker."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from pyinfra.api import StringCommand

from roles.base.remote import Answer
from roles.llama_cpp import image, operations, recipe
from roles.llama_cpp.facts import ImagesFact, ReleasesFact, RoomFact
from tests.unit.cluster.examples import NEWER
from tests.unit.llama_cpp import docker
from tests.unit.llama_cpp.test_image import ID, PLAN, W1, W2
from tests.unit.llama_cpp.test_operations import Lab, commands, on_this_computer

FOLDER = recipe.release_folder(W1.release)
PARTIAL = recipe.partial_folder(W1.release)
MORE = {"DOCKER_STORE": "2"}
"""What an image's ID has in it where Docker keeps images in another way."""


class ImageLab(Lab):
    """Each host has a Docker of its own, which runs as far as systemd knows."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, PLAN)
        self.more: dict[str, str] = {}
        for name in self.hosts:
            docker.put(folder / name)
            systemctl = folder / name / "systemctl"
            systemctl.write_text("#!/bin/sh\n")
            systemctl.chmod(0o755)

    def environment(self, name: str) -> Mapping[str, str]:
        there = str(self.folder / name)
        more = self.more if name == "w2" else {}
        path = f"{there}:{os.environ['PATH']}"
        return {**os.environ, "PATH": path, "DOCKER_STATE": f"{there}/state", "HOST_ROOT": there, **more}

    def build(self, name: str, identity: str = ID, revision: str = NEWER) -> bool:
        state = self.folder / name / "state"
        root = docker.make_image(state / "images" / identity, identity, revision)
        there = root / FOLDER.lstrip("/")
        for part in ("bin", "lib", "build"):
            (there / part).mkdir(parents=True)
        program = there / "bin" / "ggml-rpc-server"
        program.write_text("#!/bin/sh\necho '  -h, --host X\n  -p, --port X\n  -c, --cache' >&2\n")
        program.chmod(0o755)
        (there / "lib" / "libggml-rpc.so").write_text("library")
        (there / "build" / "compiler").write_text("GNU 14.2.0\n")
        (there / "build" / "unknown_options").write_text("GGML_OF_ANOTHER_TIME\n")
        self.must(name, f"docker image tag {identity} {image.partial_tag(W1.release)}")
        partial = self.path(name, PARTIAL)
        partial.mkdir(parents=True)
        (partial / "Dockerfile").write_text(image._dockerfile(W1))
        return self.do(operations._finish_build, name)

    def must(self, name: str, command: str) -> list[str]:
        answer = self.run(None, self.hosts[name], command)
        assert answer.ok, answer
        return answer.output

    def tags(self, name: str) -> dict[str, str]:
        found: dict[str, str] = json.loads((self.folder / name / "state" / "tags.json").read_text())
        return found


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ImageLab:
    return on_this_computer(ImageLab(tmp_path), monkeypatch)


def test_a_finished_build_has_its_tag_its_folder_and_its_manifest(lab: ImageLab) -> None:
    assert lab.build("w1"), lab.complaints
    found = lab.releases("w1")[W1.release]
    assert (found.commit, found.builder, found.compiler) == (NEWER, "w1", "GNU 14.2.0")
    assert (found.image, found.archive_sha256) == (ID, "")
    assert sorted(found.files) == ["bin/ggml-rpc-server", "lib/libggml-rpc.so"]
    assert lab.tags("w1") == {image.tag(W1.release): ID}
    assert sorted(path.name for path in lab.path("w1", FOLDER).iterdir()) == ["Dockerfile", "manifest.json"]
    assert not lab.path("w1", recipe.ARCHIVES).exists()


def test_an_image_of_another_commit_gets_no_name(lab: ImageLab) -> None:
    assert not lab.build("w1", revision="1" * 40)
    assert lab.complaints == [
        f"w1: its image is labelled {'1' * 40} and not with the commit {NEWER[:12]}, so {W1.release} is not used;"
        " what was in use still is."
    ]
    assert image.tag(W1.release) not in lab.tags("w1")
    assert lab.releases("w1") == {}


def test_an_image_that_cannot_be_started_is_said(lab: ImageLab) -> None:
    (lab.folder / "w1" / "state" / "starts_nothing").touch()
    assert not lab.build("w1")
    assert lab.complaints == [
        f"w1: what is to be {W1.release} could not be examined (docker: Error response from daemon: no such device.): see to it,"
        " then run again."
    ]


@pytest.mark.parametrize("step", ["docker image tag", "docker image rm", "rm -rf", "mv"])
def test_a_run_killed_before_the_last_step_leaves_no_release(lab: ImageLab, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    def killed(state: object, host: object, command: str, timeout: int = 60) -> Answer:
        return lab.run(state, host, command.replace(f"\n{step}", f"\nexit 1; {step}"), timeout)

    monkeypatch.setattr(operations, "run", killed)
    assert not lab.build("w1")
    assert lab.releases("w1") == {}


def test_what_became_of_an_image_is_noticed(lab: ImageLab) -> None:
    lab.build("w1")
    commit = lab.folder / "w1" / "state" / "images" / ID / "commit"
    commit.write_text("1" * 40)
    assert lab.releases("w1") == {}
    commit.write_text(NEWER)
    assert list(lab.releases("w1")) == [W1.release]
    docker.make_image(lab.folder / "w1" / "state" / "images" / "sha256:other", "sha256:other", NEWER)
    lab.must("w1", f"docker image tag sha256:other {image.tag(W1.release)}")
    assert lab.releases("w1") == {}
    lab.must("w1", f"docker image rm {image.tag(W1.release)}")
    assert lab.releases("w1") == {}


def test_a_host_gets_the_same_image(lab: ImageLab) -> None:
    lab.build("w1")
    assert lab.fetch("w2"), lab.complaints
    assert lab.releases("w2") == lab.releases("w1")
    assert lab.tags("w2") == lab.tags("w1") == {image.tag(W1.release): ID}
    assert sorted(path.name for path in lab.path("w2", FOLDER).iterdir()) == ["Dockerfile", "manifest.json"]
    text = (lab.path("w2", FOLDER) / "Dockerfile").read_text()
    # Paths of the host are below the lab's folder, wherever they stand in a command.
    assert text.replace(f"{lab.folder}/w2", "") == (lab.path("w1", FOLDER) / "Dockerfile").read_text()
    assert list(lab.path("w2", recipe.ARCHIVES).iterdir()) == []
    assert [path.name for path in lab.path("w1", recipe.ARCHIVES).iterdir()] == [f"{W1.release}.tar.zst"]


def test_the_image_has_the_id_that_it_has_there(lab: ImageLab) -> None:
    lab.more = MORE
    lab.build("w1")
    assert lab.fetch("w2"), lab.complaints
    assert lab.releases("w2")[W2.release].image == f"{ID}2"
    assert lab.tags("w2") == {image.tag(W1.release): f"{ID}2"}


def test_an_image_is_packed_once(lab: ImageLab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.build("w1")
    assert lab.fetch("w2")
    monkeypatch.setattr(operations, "_downloads", {})
    lab.must("w2", f"docker image rm {image.tag(W1.release)}")
    assert lab.releases("w2") == {}
    assert lab.fetch("w2"), lab.complaints
    told = (lab.folder / "w1" / "state" / "told").read_text()
    assert told.count("\nsave ") == 1
    assert list(lab.releases("w2")) == [W2.release]


def test_an_image_that_cannot_be_packed_leaves_no_archive(lab: ImageLab) -> None:
    lab.build("w1")
    (lab.folder / "w1" / "state" / "images" / ID / "away").symlink_to("/")
    lab.must("w1", f'sed -i \'s/words.0. == "save"/words[0] == "never"/\' {lab.folder}/w1/docker')
    assert not lab.fetch("w2")
    (complaint,) = lab.complaints
    assert complaint.startswith(f"w1: {W1.release} could not be packed for other hosts (unknown: ['save'")
    assert not lab.path("w1", recipe.archive(W1.release)).exists()


def test_an_image_with_another_file_is_refused(lab: ImageLab) -> None:
    lab.build("w1")
    file = lab.path("w1", FOLDER) / "manifest.json"
    digest = lab.releases("w1")[W1.release].files["lib/libggml-rpc.so"]
    file.write_text(file.read_text().replace(digest, "0" * 64))
    assert not lab.fetch("w2")
    assert lab.complaints == [
        f"w2: lib/libggml-rpc.so has another hash than in the manifest, so {W2.release} is not used; what was in use still is."
    ]
    assert lab.tags("w2") == {image.partial_tag(W2.release): ID}


def test_images_that_are_left_over_go_with_the_releases() -> None:
    images = ["gpuquilt/llama.cpp:new", "gpuquilt/llama.cpp:old", "sha256:4"]
    stop, remove = commands(operations.only_releases, images=images, keep=lambda: frozenset({"new"}))
    assert (str(stop), str(remove)) == (recipe.stop_builds(), "docker image rm gpuquilt/llama.cpp:old sha256:4")
    assert commands(operations.only_releases, images=images[:1], keep=lambda: frozenset({"new"})) == []


def test_all_images_of_ours_are_taken_back() -> None:
    yielded = commands(operations.nothing, images=["gpuquilt/llama.cpp:new"])
    assert all(isinstance(command, StringCommand) for command in yielded)
    assert [str(command) for command in yielded] == [recipe.stop_builds(), "docker image rm gpuquilt/llama.cpp:new"]
    assert commands(operations.nothing) == []


def test_a_docker_that_does_not_run_is_not_asked(lab: ImageLab) -> None:
    lab.build("w1")
    told = lab.folder / "w1" / "state" / "told"
    asked = told.read_text()
    systemctl = lab.folder / "w1" / "systemctl"
    systemctl.write_text("#!/bin/sh\nexit 3\n")
    for command in (ImagesFact().command(), ReleasesFact().command(), RoomFact().command(W1)):
        assert lab.run(None, lab.hosts["w1"], command).ok
    assert told.read_text() == asked


def test_a_release_that_is_there_needs_no_room_even_while_docker_does_not_run(lab: ImageLab) -> None:
    room = RoomFact().command(W1)
    assert lab.must("w1", room) != []
    lab.build("w1")
    assert lab.must("w1", room) == []
    (lab.folder / "w1" / "systemctl").write_text("#!/bin/sh\nexit 3\n")
    assert lab.must("w1", room) == []
    (lab.folder / "w1" / "systemctl").write_text("#!/bin/sh\n")
    lab.must("w1", f"docker image rm {image.tag(W1.release)}")
    assert lab.must("w1", room) != []
