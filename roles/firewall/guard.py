"""The command that shows the guard, and its parser. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from roles.cluster.state import RPC_SERVER
from roles.firewall.rules import DROP_IN, HEADS, PORTS, RULES, TABLE, UNIT, UNIT_FILE, Access, read

# The live table is compared with what the same nft makes of the file in an empty network namespace: a rule that somebody
# took out, or a table that somebody flushed, shows, and there is nothing to remember.
COMMAND = f"""
for file in {RULES} {UNIT_FILE} {DROP_IN}; do
    [ -f $file ] && echo "$file $(sha256sum <$file | cut -c -64)"
done
grep -axE '[[:space:]]*({PORTS}[{{}}0-9, ]+ accept|{HEADS}[{{}}0-9., ]+)' {RULES} 2>/dev/null
systemctl show {UNIT} --property=UnitFileState
systemctl show {UNIT} nftables.service --property=NeedDaemonReload | grep -q yes && echo "reload owed"
systemctl is-active --quiet {RPC_SERVER} && echo "port served"
live=$(nft -s list table {TABLE} 2>/dev/null) && echo "table loaded"
[ -f {RULES} ] && wanted=$(unshare --net sh -c 'nft -f {RULES} && nft -s list table {TABLE}' 2>/dev/null)
[ -n "$live" ] && [ "$live" = "$wanted" ] && echo "table same"
true
"""


@dataclass(frozen=True)
class Guard:
    """What a host shows.

    :param files: path → SHA-256 of those of our files that are there
    :param access: what our rules let in
    :param enabled: the rules are loaded at boot
    :param reload_owed: a unit file is newer than what systemd has read
    :param loaded: there is a live table of ours
    :param same: the live table is what the file says
    :param served: the RPC server runs
    """

    files: Mapping[str, str] = field(default_factory=dict)
    access: Access = field(default_factory=Access)
    enabled: bool = False
    reload_owed: bool = False
    loaded: bool = False
    same: bool = False
    served: bool = False


def parse(lines: Sequence[str]) -> Guard:
    """Read the output of `COMMAND`; lines that it does not know are passed over."""
    found = {line.strip() for line in lines}
    words = [line.split(" ", 1) for line in found if line.startswith("/") and " " in line]
    return Guard(
        files=dict(words),
        access=read(found),
        enabled="UnitFileState=enabled" in found,
        reload_owed="reload owed" in found,
        loaded="table loaded" in found,
        same="table same" in found,
        served="port served" in found,
    )
