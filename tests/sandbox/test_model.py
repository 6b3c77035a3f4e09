"""The model comes from a real server to a real head, whatever breaks on the way. Only the last test touches the cluster."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from hashlib import sha256
from ipaddress import ip_network

import pexpect
import pytest

from tests.conftest import ROOT, Ended, pyinfra_command
from tests.sandbox.conftest import INVENTORY, STATE, Sandbox, changes, kill
from tests.unit.model.file_server import FileServer, serve

DEPLOY = "tests/sandbox/deploys/model.py"
FOLDER = "/srv/test-models"
STAMPS = f"/var/lib/gpuquilt/models{FOLDER}"
MEBIBYTE = 1024 * 1024
OLD = os.urandom(2 * MEBIBYTE)
NEW = os.urandom(6 * MEBIBYTE)
PARTS = {f"/s-0000{number}-of-00002.gguf": os.urandom(MEBIBYTE) for number in (1, 2)}
UNTOUCHED = "nothing was changed, because:"
"""How the look begins what it refuses: no host was changed."""


@pytest.fixture
def server() -> Iterator[FileServer]:
    """On this computer's address in the sandbox's network."""
    gateway = ip_network(json.loads((STATE / "machines.json").read_text())["subnet"])[1]
    with serve(str(gateway)) as found:
        found.files |= {"/m.gguf": OLD, **PARTS}
        yield found


@pytest.fixture(autouse=True)
def a_folder_of_its_own(sandbox: Sandbox) -> Iterator[None]:
    clear = f"umount {FOLDER} 2>/dev/null; rm -rf {FOLDER} {STAMPS}"
    sandbox.head.ssh(clear)
    yield
    sandbox.head.out(clear)


def digest(content: bytes) -> str:
    return sha256(content).hexdigest()


def name(content: bytes) -> str:
    """Where a download goes, below the folder."""
    return f"{digest(content)[:12]}/m.gguf"


def arguments(source: str | list[str], content: str | list[str]) -> list[str]:
    """Ask for a model by its source and its SHA-256."""
    data = {"model_source": source, "model_sha256": content, "model_folder": FOLDER}
    return [word for key, value in data.items() for word in ("--data", f"{key}={json.dumps(value)}")]


def have(sandbox: Sandbox, source: str | list[str], content: str | list[str]) -> Ended:
    return sandbox.deploy("--json", *arguments(source, content), deploy=DEPLOY)


def served(sandbox: Sandbox, source: str | list[str], content: str | list[str]) -> Ended:
    ended = have(sandbox, source, content)
    assert ended.status == 0, ended.text
    return ended


def refused(ended: Ended, sentence: str) -> None:
    """One clear line says it."""
    assert ended.status != 0
    assert len([line for line in ended.text.splitlines() if re.search(sentence, line)]) == 1, ended.text
    assert "Traceback" not in ended.text


def on_head(sandbox: Sandbox) -> dict[str, str]:
    """File → SHA-256 of everything below the folder."""
    lines = sandbox.head.out(f"cd {FOLDER} 2>/dev/null && find . -type f -exec sha256sum {{}} + || true").splitlines()
    return {path.removeprefix("./"): found for found, path in (line.split("  ", 1) for line in lines)}


def test_a_download_and_a_second_run_that_does_nothing(sandbox: Sandbox, server: FileServer) -> None:
    source = f"{server.url}/m.gguf"
    assert changes(served(sandbox, source, digest(OLD))) == {"Model | Files": ["gq-head"]}
    assert on_head(sandbox) == {name(OLD): digest(OLD)}
    assert sandbox.head.out(f"stat -c '%U:%G %a' {FOLDER}/{name(OLD)}") == "root:root 644"
    server.requests.clear()
    assert changes(served(sandbox, source, digest(OLD))) == {}
    assert server.requests == []


def test_a_download_that_broke_off_goes_on_in_the_next_run(sandbox: Sandbox, server: FileServer) -> None:
    server.files["/m.gguf"] = NEW
    server.breaks = [4 * MEBIBYTE, 0, 0, 0]
    ended = have(sandbox, f"{server.url}/m.gguf", digest(NEW))
    refused(ended, rf"gq-head: {server.url}/m.gguf could not be downloaded \(curl: .*\): run again to go on\.")
    assert on_head(sandbox).keys() == {name(NEW) + ".partial"}
    server.requests.clear()
    served(sandbox, f"{server.url}/m.gguf", digest(NEW))
    assert on_head(sandbox) == {name(NEW): digest(NEW)}
    assert [(get.range, get.sent) for get in server.gets] == [(f"bytes={4 * MEBIBYTE}-", 2 * MEBIBYTE)]


def test_a_run_that_is_killed_leaves_the_download_at_work_and_the_next_follows_it(sandbox: Sandbox, server: FileServer) -> None:
    server.files["/m.gguf"] = NEW
    # Until it is seen to be followed; curl gives up where nothing comes for a minute.
    server.delay = 20
    command = pyinfra_command("-y", INVENTORY, DEPLOY, *arguments(f"{server.url}/m.gguf", digest(NEW)))
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while not server.gets:
            assert process.poll() is None, "the run ended before it downloaded"
            time.sleep(0.1)
    finally:
        kill(process)
    with pexpect.spawn(command[0], command[1:], cwd=str(ROOT), encoding="utf-8", timeout=120) as terminal:
        terminal.expect(r"downloading m\.gguf: \d of 6 MiB")
        server.delay = 0
        terminal.expect(pexpect.EOF)
    assert terminal.exitstatus == 0, terminal.before
    assert on_head(sandbox) == {name(NEW): digest(NEW)}
    assert [(get.range, get.sent) for get in server.gets] == [(None, len(NEW))]


def test_a_wrong_hash_leaves_the_old_file(sandbox: Sandbox, server: FileServer) -> None:
    source = f"{server.url}/m.gguf"
    served(sandbox, source, digest(OLD))
    wanted = "0" * 64
    server.files["/m.gguf"] = NEW
    refused(
        have(sandbox, source, wanted),
        f"gq-head: model_source = {source} has the SHA-256 {digest(NEW)}, and model_sha256 is {wanted}",
    )
    assert on_head(sandbox) == {name(OLD): digest(OLD)}
    served(sandbox, source, digest(NEW))
    assert on_head(sandbox) == {name(OLD): digest(OLD), name(NEW): digest(NEW)}


def test_a_byte_that_changed_brings_the_file_anew(sandbox: Sandbox, server: FileServer) -> None:
    source = f"{server.url}/m.gguf"
    served(sandbox, source, digest(OLD))
    sandbox.head.out(f"printf X | dd of={FOLDER}/{name(OLD)} bs=1 seek=1000 conv=notrunc status=none")
    served(sandbox, source, digest(OLD))
    assert on_head(sandbox) == {name(OLD): digest(OLD)}
    assert len(server.gets) == 2


def test_too_little_disk_is_known_before_anything_is_changed(sandbox: Sandbox, server: FileServer) -> None:
    sandbox.head.out(f"mkdir -p {FOLDER} && mount -t tmpfs -o size=67m tmpfs {FOLDER}")
    server.files["/m.gguf"] = NEW
    ended = have(sandbox, f"{server.url}/m.gguf", digest(NEW))
    refused(ended, f"gq-head: {FOLDER}/{digest(NEW)[:12]} has 67 MiB free, and the download needs 6 MiB and leaves 64 MiB free")
    assert UNTOUCHED in ended.text
    assert server.gets == []


def test_a_source_that_is_not_there_is_known_before_anything_is_changed(sandbox: Sandbox, server: FileServer) -> None:
    ended = have(sandbox, f"{server.url}/other.gguf", digest(OLD))
    refused(ended, f"gq-head: model_source = {server.url}/other.gguf cannot be had \\(HTTP status 404\\)")
    assert UNTOUCHED in ended.text
    nobody = server.url.rpartition(":")[0] + ":9/m.gguf"
    ended = have(sandbox, nobody, digest(OLD))
    refused(ended, f"gq-head: model_source = {nobody} cannot be reached from there \\(curl: \\(7\\)")
    assert UNTOUCHED in ended.text
    ended = have(sandbox, "/srv/none.gguf", digest(OLD))
    refused(ended, r"gq-head: model_source = /srv/none\.gguf is no file there")
    assert UNTOUCHED in ended.text


def test_a_split_model(sandbox: Sandbox, server: FileServer) -> None:
    sources, hashes = [server.url + name for name in PARTS], [digest(content) for content in PARTS.values()]
    served(sandbox, sources, hashes)
    folder = hashes[0][:12]
    assert on_head(sandbox) == {folder + path: digest(content) for path, content in PARTS.items()}
    assert changes(served(sandbox, sources, hashes)) == {}


def test_a_file_in_place_is_used_and_never_deleted(sandbox: Sandbox, server: FileServer) -> None:
    served(sandbox, f"{server.url}/m.gguf", digest(OLD))
    mine = f"{FOLDER}/mine.gguf"
    sandbox.head.out(f"cp {FOLDER}/{name(OLD)} {mine}")
    wanted = digest(NEW)
    sentence = f"gq-head: model_source = {mine} has the SHA-256 {digest(OLD)}, and model_sha256 is {wanted}"
    refused(have(sandbox, mine, wanted), sentence)
    ended = have(sandbox, mine, wanted)
    refused(ended, sentence)
    assert UNTOUCHED in ended.text
    served(sandbox, mine, digest(OLD))
    assert changes(served(sandbox, mine, digest(OLD))) == {}
    assert on_head(sandbox) == {name(OLD): digest(OLD), "mine.gguf": digest(OLD)}


def test_a_file_that_the_service_cannot_read(sandbox: Sandbox, server: FileServer) -> None:
    served(sandbox, f"{server.url}/m.gguf", digest(OLD))
    file = f"{FOLDER}/{name(OLD)}"
    sandbox.head.out(f"chmod 600 {file}")
    ended = have(sandbox, file, digest(OLD))
    refused(ended, f"gq-head: the user of the service cannot read {file}: allow it")
    assert UNTOUCHED in ended.text


def test_another_model_of_the_same_name_is_served_and_the_old_one_stays(sandbox: Sandbox) -> None:
    """Its content differs by a byte at the end, which llama.cpp does not read."""
    pid = "$(systemctl show llama-server --property=MainPID --value)"
    mapped = f"sed -n 's|^[^/]*/|/|p' /proc/{pid}/maps | grep gguf | sort -u"
    before = sandbox.head.out(mapped)
    assert before.endswith(".gguf")
    other = f"{FOLDER}/other/{before.rpartition('/')[2]}"
    sandbox.head.out(f"mkdir -p {FOLDER}/other && cp {before} {other} && printf x >>{other}")
    wanted = sandbox.head.out(f"sha256sum <{other} | cut -c -64")
    words = arguments(f"file://{other}", wanted)
    try:
        # A switch that fails has the old model to go back to.
        broken = sandbox.deploy(*words, "--data", 'llama_server_environment={"LLAMA_API_KEY": "nobody has it"}')
        assert broken.status != 0
        assert "Every host is back on the release before, which answers." in broken.text
        assert sandbox.head.out(mapped) == before
        ended = sandbox.deploy(*words)
        assert ended.status == 0, ended.text
        after = sandbox.head.out(mapped)
        assert after.rpartition("/")[2] == before.rpartition("/")[2]
        assert sandbox.head.out(f"sha256sum <{after} | cut -c -64") == wanted
        assert sandbox.head.ssh(f"test -f {before}").status == 0
        assert "Paris" in sandbox.ask()
    finally:
        ended = sandbox.deploy()
    assert ended.status == 0, ended.text
    assert sandbox.head.out(mapped) == before
