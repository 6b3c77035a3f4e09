"""What a host shows of its services: the real command, and its parser."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roles.cluster.banner import Device
from roles.cluster.seen import BEFORE, COMMAND, VERIFIED, parse
from roles.cluster.state import CURRENT, LLAMA_SERVER, RPC_SERVER, HostState, Seen, Service, Unit
from tests.unit.cluster.examples import NEWER, OLDER

TEXT = '[Unit]\n[Service]\nEnvironment="A=\\x41 \\"b\\"" %%\n'
STATE = HostState("release-2", NEWER, "aaaa", {RPC_SERVER: Unit(TEXT, "192.0.2.11:50052", ())})
OLD_STATE = HostState("release-1", OLDER, "bbbb", {RPC_SERVER: Unit("[Unit]\n", "192.0.2.11:50052", ())})

HEAD = [
    "current 222222222222-debian13-v3-cpu-head-aaaaaa",
    "rpc-server.service ActiveState=inactive",
    "rpc-server.service SubState=dead",
    "rpc-server.service UnitFileState=",
    "rpc-server.service NeedDaemonReload=no",
    "llama-server.service ActiveState=active",
    "llama-server.service SubState=running",
    "llama-server.service UnitFileState=enabled",
    "llama-server.service NeedDaemonReload=yes",
    "llama-server.service file=" + "f" * 64,
    "llama-server.service ours=yes",
    "llama-server.service program=/opt/llama.cpp/releases/222222222222-debian13-v3-cpu-head-aaaaaa/bin/llama-server",
    "llama-server.service mark=0123456789abcdef",
    "connection ESTAB 192.0.2.11:50052",
    "connection CLOSE-WAIT 192.0.2.12:50052",
    f"verified {STATE.to_json()}",
    f"before {OLD_STATE.to_json()}",
]


def test_a_head_that_runs() -> None:
    assert parse(HEAD) == Seen(
        current="222222222222-debian13-v3-cpu-head-aaaaaa",
        services={
            RPC_SERVER: Service(),
            LLAMA_SERVER: Service(
                active=True,
                enabled=True,
                ours=True,
                program="/opt/llama.cpp/releases/222222222222-debian13-v3-cpu-head-aaaaaa/bin/llama-server",
                mark="0123456789abcdef",
                file_digest="f" * 64,
                reload_owed=True,
            ),
        },
        connections=(("ESTAB", "192.0.2.11:50052"), ("CLOSE-WAIT", "192.0.2.12:50052")),
        verified=STATE,
        before=OLD_STATE,
    )


@pytest.mark.parametrize("state", ["activating", "deactivating", "failed", "reloading", "inactive"])
def test_a_service_is_active_only_when_it_runs(state: str) -> None:
    lines = [f"rpc-server.service ActiveState={state}", "rpc-server.service SubState=auto-restart"]
    assert not parse(lines).services[RPC_SERVER].active


def test_an_active_unit_whose_process_has_exited_is_not_active() -> None:
    lines = ["rpc-server.service ActiveState=active", "rpc-server.service SubState=exited"]
    assert not parse(lines).services[RPC_SERVER].active


def test_a_damaged_state_is_none_and_the_rest_is_read() -> None:
    seen = parse(["current release-2", 'verified {"release": "rel'])
    assert (seen.current, seen.verified) == ("release-2", None)


@given(st.lists(st.text() | st.sampled_from(HEAD) | st.from_regex(r"(current|verified|before|connection) ?.*", fullmatch=True)))
def test_parsing_never_raises(lines: list[str]) -> None:
    assert isinstance(parse(lines), Seen)


def show(folder: Path) -> Seen:
    """What the real command and the parser make of a host whose files lie in a folder; without systemd."""
    command = COMMAND
    for path in (VERIFIED, BEFORE, CURRENT, "/etc/systemd/system"):
        command = command.replace(path, f"{folder}{path}")
    environment = os.environ | {"PATH": f"{folder}/programs:{os.environ['PATH']}"}
    ended = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True, env=environment)
    return parse(ended.stdout.splitlines())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty host, whose systemd says what is in the folder `services`, property by property."""
    for path in ("programs", "services", "etc/systemd/system", "var/lib/gpuquilt", "opt/llama.cpp/releases"):
        (tmp_path / path).mkdir(parents=True)
    systemctl = tmp_path / "programs/systemctl"
    systemctl.write_text(
        f"""#!/bin/sh
# Called as: show UNIT --property=NAMES [--value]
names=$(echo "${{3#--property=}}" | tr , ' ')
for name in $names; do
    value=$(sed -n "s/^$name=//p" "{tmp_path}/services/$2" 2>/dev/null)
    if [ "$4" = --value ]; then echo "${{value:-0}}"; else echo "$name=$value"; fi
done
"""
    )
    systemctl.chmod(0o755)
    return tmp_path


def test_the_command_on_a_host_where_nothing_is_installed(folder: Path) -> None:
    assert show(folder) == Seen(services={RPC_SERVER: Service(), LLAMA_SERVER: Service()})


def test_the_command_brings_states_back_as_they_were_written(folder: Path) -> None:
    """Every unit has line breaks, and a shell's echo is free to make of `\\n` what it likes."""
    (folder / f".{VERIFIED}").write_text(STATE.to_json())
    (folder / f".{BEFORE}").write_text(OLD_STATE.to_json())
    seen = show(folder)
    assert seen.verified == STATE
    assert seen.before == OLD_STATE


def test_the_command_reads_release_unit_file_and_process(folder: Path) -> None:
    (folder / f".{CURRENT}").symlink_to("/opt/llama.cpp/releases/release-2")
    (folder / "etc/systemd/system/rpc-server.service").write_text("[Service]\nEnvironment=GPUQUILT_STATE=feed\n")
    with subprocess.Popen(["sleep", "60"], env={"GPUQUILT_STATE": "feed", "PATH": os.environ["PATH"]}) as process:
        (folder / "services" / RPC_SERVER).write_text(
            f"ActiveState=active\nSubState=running\nUnitFileState=enabled\nNeedDaemonReload=no\nMainPID={process.pid}\n"
        )
        seen = show(folder)
        program = str(Path(f"/proc/{process.pid}/exe").readlink())
        process.kill()
    assert seen.current == "release-2"
    service = seen.services[RPC_SERVER]
    assert (service.active, service.enabled, service.ours, service.mark) == (True, True, True, "feed")
    assert service.program == program
    assert len(service.file_digest) == 64


def test_the_command_reads_what_a_worker_serves(folder: Path) -> None:
    (folder / "services" / RPC_SERVER).write_text(f"MainPID={os.getpid()}\nInvocationID=12ab\n")
    journalctl = folder / "programs/journalctl"
    banner = "Started it.\nDevices:\n  CUDA0: a card (8192 MiB, 8000 MiB free)\n  transport : TCP\nAccepted client\n"
    journalctl.write_text(f"#!/bin/sh\n[ \"$3\" = _SYSTEMD_INVOCATION_ID=12ab ] && cat <<'END'\n{banner}END\n")
    journalctl.chmod(0o755)
    assert show(folder).services[RPC_SERVER].devices == (Device("CUDA0", "a card"),)


def test_the_command_reads_the_process_of_a_container(folder: Path) -> None:
    client = shutil.copy("/usr/bin/sleep", folder / "docker")
    environment = {"GPUQUILT_STATE": "feed", "PATH": os.environ["PATH"]}
    with subprocess.Popen([client, "60"]) as main, subprocess.Popen(["sleep", "60"], env=environment) as process:
        docker = folder / "programs/docker"
        docker.write_text(f"#!/bin/sh\necho {process.pid}\n")
        docker.chmod(0o755)
        (folder / "services" / LLAMA_SERVER).write_text(f"MainPID={main.pid}\n")
        service = show(folder).services[LLAMA_SERVER]
        program = str(Path(f"/proc/{process.pid}/exe").readlink())
        main.kill()
        process.kill()
    assert (service.mark, service.program) == ("feed", program)


def test_a_unit_that_the_user_wrote_is_not_ours(folder: Path) -> None:
    (folder / "etc/systemd/system/rpc-server.service").write_text("[Service]\nExecStart=/usr/local/bin/rpc-server\n")
    assert not show(folder).services[RPC_SERVER].ours


def test_the_heads_connections_are_told_from_those_of_other_processes(folder: Path) -> None:
    lines = [
        'ESTAB      0 0 192.0.2.10:41234 192.0.2.11:50052 users:(("llama-server",pid=12,fd=7))',
        'CLOSE-WAIT 1 0 192.0.2.10:41236 192.0.2.12:50052 users:(("llama-server",pid=12,fd=8))',
        'ESTAB      0 0 192.0.2.10:41238 192.0.2.13:50052 users:(("other",pid=123,fd=3))',
    ]
    ss = folder / "programs/ss"
    ss.write_text("#!/bin/sh\ncat <<'END'\n" + "\n".join(lines) + "\nEND\n")
    ss.chmod(0o755)
    (folder / "services" / LLAMA_SERVER).write_text("ActiveState=active\nSubState=running\nMainPID=12\n")
    assert show(folder).connections == (("ESTAB", "192.0.2.11:50052"), ("CLOSE-WAIT", "192.0.2.12:50052"))
