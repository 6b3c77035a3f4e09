"""The computer in front of the user is controller and worker at once: `@local` beside hosts that are reached by SSH."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

from tests.conftest import run
from tests.sandbox.conftest import NEW, ROOT, Sandbox, changes
from tests.sandbox.test_access import bare

INVENTORY = """
workers = [
    ("@local", {{}}),
    ("gq-w2", {{"ssh_hostname": "{w2}", "ssh_user": "root", "ssh_key": "/root/.ssh/sandbox"}}),
]
heads = [("gq-head", {{"ssh_hostname": "{head}", "ssh_user": "root", "ssh_key": "/root/.ssh/sandbox"}})]
all = ([*workers, *heads], {data})
"""
PACKAGES = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]


def test_the_controller_is_a_worker_of_its_own_cluster(sandbox: Sandbox, tmp_path: Path) -> None:
    """It has to build, to put firewall and service in place on itself, and to switch the others with it."""
    sandbox.at(NEW)
    install_controller(sandbox, tmp_path)
    deploy = "cd /root/gpuquilt && venv/bin/pyinfra {} -y inventories/here.py deploys/cluster.py"
    try:
        bare(sandbox.w1)
        ended = sandbox.w1.ssh(deploy.format(""), timeout=600)
        assert ended.status == 0, ended.text
        again = sandbox.w1.ssh(deploy.format("--json"), timeout=300)
        assert changes(again) == {}
        assert sandbox.commits() == {NEW[:12]}
        assert "Paris" in sandbox.ask()
    finally:
        sandbox.w1.out("rm -rf /root/gpuquilt /root/wheels /root/.ssh/sandbox")
        assert sandbox.deploy().status == 0


def install_controller(sandbox: Sandbox, folder: Path) -> None:
    """Put this working tree and its packages on the first worker, with the key of the sandbox."""
    wheels = folder / "wheels"
    sandbox.w1.out("apt-get install -qq -y python3-venv >/dev/null", timeout=300)
    version = sandbox.w1.out("python3 -c 'import sys; print(*sys.version_info[:2], sep=\".\")'")
    target = ("--only-binary=:all:", "--python-version", version, "--dest", str(wheels))
    downloaded = run(sys.executable, "-m", "pip", "download", "--quiet", *target, *PACKAGES, timeout=600)
    assert downloaded.status == 0, downloaded.text
    (folder / "sandbox").write_bytes(Path(sandbox.w1.key).read_bytes())
    tree = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    archive = folder / "tree.tar"
    subprocess.run(["tar", "--create", "--file", archive, "--null", "--files-from=-"], cwd=ROOT, input=tree, check=True)
    send(sandbox, archive, "/root/gpuquilt")
    subprocess.run(["tar", "--create", "--file", archive, "-C", folder, "wheels", "sandbox"], check=True)
    send(sandbox, archive, "/root")
    sandbox.w1.out("install -m 600 /root/sandbox /root/.ssh/sandbox && rm /root/sandbox")
    sandbox.w1.out(
        "cd /root/gpuquilt && python3 -m venv venv"
        " && venv/bin/pip install --quiet --no-index --find-links /root/wheels " + shlex.join(PACKAGES),
        timeout=300,
    )
    text = INVENTORY.format(w2=sandbox.w2.address, head=sandbox.head.address, data=settings_of_the_sandbox())
    sandbox.w1.out(f"cat >/root/gpuquilt/inventories/here.py <<'E'\n{text}E")


def send(sandbox: Sandbox, archive: Path, folder: str) -> None:
    """Unpack an archive on the first worker."""
    machine = sandbox.w1
    ssh = ["ssh", "-o", "BatchMode=yes", "-o", f"UserKnownHostsFile={machine.known_hosts}", "-i", machine.key]
    with archive.open("rb") as content:
        command = f"mkdir -p {folder} && tar -C {folder} --no-same-owner -xf -"
        subprocess.run([*ssh, f"root@{machine.address}", command], stdin=content, check=True, timeout=120)


def settings_of_the_sandbox() -> dict[str, object]:
    """The cluster's settings as the sandbox's inventory has them, read by pyinfra."""
    ended = run(sys.executable, "-m", "pyinfra", "--json", "inventories/sandbox.py", "debug-inventory")
    data: dict[str, object] = json.loads(ended.output)[0]["data"]
    return {key: value for key, value in data.items() if not key.startswith(("_", "ssh_"))}
