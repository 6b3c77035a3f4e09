"""What the operations yield, and a release's whole way from one host to others, on folders of this computer."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest
from pyinfra.api import FunctionCommand, StringCommand
from pyinfra.context import ctx_host, ctx_state
from pyinfra_testing.util import FakeState, create_host

from roles.base.remote import Answer
from roles.cluster.plan import HostPlan, Plan
from roles.cluster.state import CURRENT, RELEASES
from roles.llama_cpp import gate, operations, recipe
from roles.llama_cpp.facts import ReleasesFact
from roles.llama_cpp.manifest import Manifest
from tests.unit.cluster.examples import NEWER, good_plan
from tests.unit.llama_cpp.examples import manifest

PLAN = good_plan()
W1, W2, HEAD = (PLAN.hosts[name] for name in ("w1", "w2", "head"))


def commands(
    operation: Any,
    releases: Mapping[str, Any] = {},
    stock: list[str] | None = None,
    images: list[str] | None = None,
    **arguments: Any,
) -> list[Any]:
    """What an operation yields on a host that shows this."""
    state = FakeState()
    facts = {
        "facts.ReleasesFact": releases,
        "facts.StockFact": stock or [],
        "facts.ImagesFact": images or [],
        "facts.PathsFact": {f"paths={[RELEASES, recipe.ARCHIVES, CURRENT, recipe.ROOT]}": []},
        "facts.CheckoutFact": {f"folder={recipe.SOURCE}": ""},
        "facts.MissingPackagesFact": {f"names={list(recipe.TOOLS)}": ["cmake"]},
    }
    host = create_host(state, facts=facts)
    with ctx_state.use(state), ctx_host.use(host):
        return list(operation._inner(**arguments))


def test_a_host_that_builds_stops_other_builds_checks_out_builds_and_finishes() -> None:
    stop, checkout, work, finish = commands(operations.built_release, plan=W1, repository="/srv/mirror", jobs=0)
    assert isinstance(stop, StringCommand)
    assert str(stop) == recipe.stop_builds(but=W1.release)
    assert checkout.args == ("/srv/mirror", NEWER, recipe.SOURCE)
    assert work.args[:2] == (f"{recipe.UNIT}{W1.release}", recipe.build_script(W1, 0))
    assert isinstance(finish, FunctionCommand)


@pytest.mark.parametrize(
    ("operation", "arguments"),
    [(operations.build_tools, {}), (operations.built_release, {"repository": "x", "jobs": 0}), (operations.fetched_release, {})],
)
@pytest.mark.parametrize("plan", [W1, W2, HEAD], ids=lambda plan: plan.name)
def test_nothing_is_done_where_the_release_is_there(operation: Any, arguments: dict[str, Any], plan: HostPlan) -> None:
    assert commands(operation, releases={plan.release: manifest()}, plan=plan, **arguments) == []


def test_who_builds_does_not_fetch_and_who_fetches_does_not_build() -> None:
    assert commands(operations.fetched_release, plan=W1) == []
    assert commands(operations.built_release, plan=W2, repository="x", jobs=0) == []
    assert commands(operations.build_tools, plan=W2) == []
    assert len(commands(operations.fetched_release, plan=W2)) == 1
    assert len(commands(operations.build_tools, plan=W1)) == 1


def test_what_is_left_over_is_removed_once_nothing_builds() -> None:
    stock = ["/opt/llama.cpp/releases/new", "/opt/llama.cpp/releases/old", "/opt/llama.cpp/archives/old.tar.zst"]
    stop, remove = commands(operations.only_releases, stock=stock, keep=lambda: frozenset({"new"}))
    assert str(stop) == recipe.stop_builds()
    assert str(remove) == "rm -rf /opt/llama.cpp/archives/old.tar.zst /opt/llama.cpp/releases/old"
    assert commands(operations.only_releases, stock=stock[:1], keep=lambda: frozenset({"new"})) == []


def test_all_builds_but_one_are_stopped(tmp_path: Path) -> None:
    stand_in = tmp_path / "systemctl"
    stand_in.write_text(
        '#!/bin/sh\n[ "$1" = stop ] && echo "$2" || printf "%s loaded active running x\\n" '
        + " ".join(f"{recipe.UNIT}{name}.service" for name in ("old", "new"))
        + "\n"
    )
    stand_in.chmod(0o755)

    def stopped(command: str) -> list[str]:
        path = f"{tmp_path}:{os.environ['PATH']}"
        return subprocess.run(["sh", "-c", command], env={"PATH": path}, capture_output=True, text=True).stdout.split()

    assert stopped(recipe.stop_builds(but="new")) == [f"{recipe.UNIT}old.service"]
    assert stopped(recipe.stop_builds()) == [f"{recipe.UNIT}old.service", f"{recipe.UNIT}new.service"]


AnyLab = TypeVar("AnyLab", bound="Lab")


class Lab:
    """Hosts that are folders of this computer."""

    def __init__(self, folder: Path, plan: Plan) -> None:
        self.folder = folder
        self.plan = plan
        self.complaints: list[str] = []
        self.downloads: list[str] = []
        self.hosts = {name: self._host(name) for name in plan.hosts}
        self.state = SimpleNamespace(inventory=SimpleNamespace(get_host=self.hosts.get))

    def _host(self, name: str) -> Any:
        (self.folder / name / "opt/llama.cpp/releases").mkdir(parents=True)

        def get_file(remote: str, local: str) -> bool:
            self.downloads.append(remote)
            shutil.copyfile(self.path(name, remote), local)
            return True

        def put_file(local: str, remote: str, remote_temp_filename: str, **_: Any) -> bool:
            assert remote_temp_filename.startswith("/var/tmp/"), "/tmp can be memory"
            shutil.copyfile(local, self.path(name, remote))
            return True

        return SimpleNamespace(name=name, get_file=get_file, put_file=put_file)

    def path(self, name: str, there: str) -> Path:
        """Where a path of a host is."""
        return self.folder / name / there.lstrip("/")

    def run(self, state: Any, host: Any, command: str, timeout: int = 60) -> Answer:
        for root in ("/opt/llama.cpp", recipe.ROOT):
            command = command.replace(root, f"{self.folder}/{host.name}{root}")
        ended = subprocess.run(["sh", "-c", command], capture_output=True, text=True, env=self.environment(host.name))
        return Answer(ended.returncode == 0, ended.stdout.splitlines(), ended.stderr.splitlines())

    def environment(self, name: str) -> Mapping[str, str]:
        """What the commands of a host run in."""
        return os.environ

    def build(self, name: str) -> bool:
        """Leave what the build's script leaves, and finish it."""
        plan = self.plan.hosts[name]
        partial, build = self.path(name, recipe.partial_folder(plan.release)), self.path(name, recipe.build_folder(plan.release))
        archive = self.path(name, recipe.archive(plan.release))
        for folder in (partial / "bin", partial / "lib", build, archive.parent):
            folder.mkdir(parents=True)
        program = partial / "bin" / "ggml-rpc-server"
        program.write_text("#!/bin/sh\necho '  -h, --host X\n  -p, --port X\n  -c, --cache' >&2\n")
        program.chmod(0o755)
        (partial / "lib" / "libggml-rpc.so").write_text("library")
        (build / "compiler").write_text("GNU 14.2.0\n")
        (build / "unknown_options").write_text("")
        subprocess.run(["tar", "-C", partial, "-I", "zstd -q", "-cf", archive, "bin", "lib"], check=True)
        return self.do(operations._finish_build, name)

    def fetch(self, name: str) -> bool:
        return self.do(operations._fetch, name)

    def do(self, work: Callable[..., None], name: str) -> bool:
        return operations._reporting(self.state, self.hosts[name], work, self.plan.hosts[name])  # type: ignore[arg-type]

    def releases(self, name: str) -> dict[str, Manifest]:
        """What the fact tells of a host."""
        fact = ReleasesFact()
        return fact.process(self.run(None, self.hosts[name], fact.command()).output)


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    return on_this_computer(Lab(tmp_path, PLAN), monkeypatch)


def on_this_computer(lab: AnyLab, monkeypatch: pytest.MonkeyPatch) -> AnyLab:
    """Have operations talk to a lab's hosts."""
    monkeypatch.setattr(operations, "run", lab.run)
    monkeypatch.setattr(operations, "say", lambda host, sentence: None)
    monkeypatch.setattr(operations, "complain", lambda host, sentence: lab.complaints.append(sentence))
    monkeypatch.setattr(operations, "connection_arguments", lambda state, host: {})
    monkeypatch.setattr(operations, "_downloads", {})
    # A script has no libraries that ldd could list.
    monkeypatch.setattr(gate, "_library_problems", lambda path, lines, backends: [])
    return lab


def test_a_finished_build_has_its_name_and_its_manifest(lab: Lab) -> None:
    assert lab.build("w1"), lab.complaints
    found = lab.releases("w1")[W1.release]
    assert (found.commit, found.builder, found.compiler) == (NEWER, "w1", "GNU 14.2.0")
    assert found.programs == {"rpc-server": "bin/ggml-rpc-server"}
    assert "--cache" in found.flags["rpc-server"]
    assert sorted(found.files) == ["bin/ggml-rpc-server", "lib/libggml-rpc.so"]
    assert len(found.archive_sha256) == 64
    assert not lab.path("w1", recipe.build_folder(W1.release)).exists()


def test_a_build_that_does_not_pass_gets_no_name(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(gate.REQUIRED_FLAGS, "rpc-server", ("--no-such-flag",))
    assert not lab.build("w1")
    assert lab.complaints == [
        f"w1: bin/ggml-rpc-server does not know --no-such-flag, so {W1.release} is not used; what was in use still is."
    ]
    assert lab.releases("w1") == {}


def test_a_host_gets_the_same_release(lab: Lab) -> None:
    lab.build("w1")
    assert lab.fetch("w2"), lab.complaints
    assert lab.releases("w2") == lab.releases("w1")
    folder = lab.path("w2", "/opt/llama.cpp/releases")
    assert [path.name for path in folder.iterdir()] == [W2.release]


def test_an_archive_is_downloaded_once_for_all(lab: Lab) -> None:
    lab.build("w1")
    assert lab.fetch("w2")
    shutil.rmtree(lab.path("w2", recipe.release_folder(W2.release)))
    assert lab.fetch("w2")
    assert lab.downloads == [recipe.archive(W1.release)]


def test_a_host_that_got_a_release_can_give_it_to_others(lab: Lab) -> None:
    lab.build("w1")
    assert lab.fetch("w2")
    assert lab.path("w2", recipe.archive(W2.release)).read_bytes() == lab.path("w1", recipe.archive(W1.release)).read_bytes()


def test_an_archive_that_is_another_is_refused(lab: Lab) -> None:
    lab.build("w1")
    lab.path("w1", recipe.archive(W1.release)).write_bytes(b"another")
    assert not lab.fetch("w2")
    (complaint,) = lab.complaints
    assert complaint.startswith(f"w1: {recipe.archive(W1.release)} is not the archive that the manifest of {W1.release} names")
    assert lab.releases("w2") == {}


def test_an_archive_that_changed_on_its_way_is_refused(lab: Lab) -> None:
    lab.build("w1")
    put = lab.hosts["w2"].put_file

    def cut(local: str, remote: str, **arguments: Any) -> bool:
        put(local, remote, **arguments)
        there = lab.path("w2", remote)
        there.write_bytes(there.read_bytes()[:-1])
        return True

    lab.hosts["w2"].put_file = cut
    assert not lab.fetch("w2")
    assert lab.complaints == [
        f"w2: the archive of {W2.release} could not be unpacked (its hash is wrong): see to it, then run again."
    ]
    assert list(lab.path("w2", "/opt/llama.cpp/releases").iterdir()) == []


def test_a_file_that_is_not_the_manifests_is_refused(lab: Lab) -> None:
    lab.build("w1")
    file = lab.path("w1", recipe.release_folder(W1.release)) / "manifest.json"
    digest = lab.releases("w1")[W1.release].files["lib/libggml-rpc.so"]
    file.write_text(file.read_text().replace(digest, "0" * 64))
    assert not lab.fetch("w2")
    assert lab.complaints == [
        f"w2: lib/libggml-rpc.so has another hash than in the manifest, so {W2.release} is not used; what was in use still is."
    ]


def test_a_builder_without_the_release_or_its_archive_is_said(lab: Lab) -> None:
    assert not lab.fetch("w2")
    assert lab.complaints.pop().startswith(f"w1: there is no {recipe.release_folder(W1.release)}/manifest.json to give")
    lab.build("w1")
    lab.path("w1", recipe.archive(W1.release)).unlink()
    assert not lab.fetch("w2")
    assert lab.complaints.pop().startswith(
        f"w1: {recipe.archive(W1.release)}, which other hosts need, could not be copied to /var/tmp/gpuquilt-"
    )


def test_a_folder_is_no_release_without_its_own_manifest(lab: Lab) -> None:
    lab.build("w1")
    folder = lab.path("w1", recipe.release_folder(W1.release))
    shutil.copytree(folder, folder.with_name("another"))
    broken = folder.with_name("broken")
    broken.mkdir()
    (broken / "manifest.json").write_text("{")
    folder.with_name("empty").mkdir()
    assert list(lab.releases("w1")) == [W1.release]
