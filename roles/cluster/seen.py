"""The command that shows what a host runs, and its parser. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from roles.base.units import main_pid
from roles.cluster.banner import END, devices
from roles.cluster.state import CURRENT, LLAMA_SERVER, MARK, RPC_SERVER, UNITS, HostState, Seen, Service

VERIFIED = "/var/lib/gpuquilt/verified.json"
BEFORE = "/var/lib/gpuquilt/before.json"

LINES = 200
"""Of a worker's journal since its start, within which it has named its devices: the whole can be long."""

COMMAND = f"""
echo "current $(basename "$(readlink {CURRENT})")"
for unit in {" ".join(UNITS)}; do
    systemctl show "$unit" --property=ActiveState,SubState,UnitFileState,NeedDaemonReload | sed "s/^/$unit /"
    file=/etc/systemd/system/$unit
    if [ -f "$file" ]; then
        echo "$unit file=$(sha256sum <"$file" | cut -c -64)"
        grep -q '^Environment={MARK}=' "$file" && echo "$unit ours=yes"
    fi
    {main_pid("$unit")}
    [ "$pid" -gt 0 ] || continue
    echo "$unit program=$(readlink "/proc/$pid/exe")"
    echo "$unit mark=$(tr '\\0' '\\n' <"/proc/$pid/environ" | sed -n 's/^{MARK}=//p')"
    if [ "$unit" = {RPC_SERVER} ]; then
        start=$(systemctl show "$unit" --property=InvocationID --value)
        journalctl --quiet --output=cat _SYSTEMD_INVOCATION_ID="$start" | head -n {LINES} |
            grep -e '^Devices:' -e 'MiB free)' -e '^ *{END}' | sed 's/^/served /'
    fi
    [ "$unit" = {LLAMA_SERVER} ] && ss -Htnp | awk -v pid="pid=$pid," 'index($0, pid) {{print "connection " $1 " " $5}}'
done
[ -f {VERIFIED} ] && printf 'verified %s\\n' "$(cat {VERIFIED})"
[ -f {BEFORE} ] && printf 'before %s\\n' "$(cat {BEFORE})"
true
"""


def parse(lines: Sequence[str]) -> Seen:
    """Read the output of `COMMAND`; lines that it does not know are passed over."""
    properties: dict[str, dict[str, str]] = {unit: {} for unit in UNITS}
    connections: list[tuple[str, str]] = []
    served: list[str] = []
    seen = Seen()
    for line in lines:
        key, _, value = line.partition(" ")
        if key in properties:
            name, _, text = value.partition("=")
            properties[key][name] = text
        elif key == "connection":
            state, _, peer = value.partition(" ")
            connections.append((state, peer))
        elif key == "served":
            served.append(value)
        elif key == "current":
            seen = replace(seen, current=value)
        elif key == "verified":
            seen = replace(seen, verified=HostState.from_json(value))
        elif key == "before":
            seen = replace(seen, before=HostState.from_json(value))
    services = {unit: _service(found) for unit, found in properties.items() if found}
    if RPC_SERVER in services:
        services[RPC_SERVER] = replace(services[RPC_SERVER], devices=devices(served))
    return replace(seen, services=services, connections=tuple(connections))


def _service(found: dict[str, str]) -> Service:
    return Service(
        active=found.get("ActiveState") == "active" and found.get("SubState") == "running",
        enabled=found.get("UnitFileState") == "enabled",
        ours=found.get("ours") == "yes",
        program=found.get("program", ""),
        mark=found.get("mark", ""),
        file_digest=found.get("file", ""),
        reload_owed=found.get("NeedDaemonReload") == "yes",
    )
