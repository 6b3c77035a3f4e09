"""What every host gets: the system user, our folders, the few packages that all roles need, and an apt that waits for its lock.

On the host: /etc/apt/apt.conf.d/80gpuquilt · /etc/gpuquilt/ · /var/lib/gpuquilt/ · /opt/llama.cpp/ · the user `llama` ·
/etc/apt/sources.list.d/gpuquilt-components.sources, where a role needs more of the distribution than the host has switched on.
"""

from io import StringIO

from pyinfra.api import deploy
from pyinfra.operations import files, server

from roles.base.machine import HOME, USER
from roles.base.operations import packages
from roles.base.removal import no_paths, no_user

PACKAGES = ["bash", "ca-certificates", "curl", "iproute2", "libgomp1", "nftables", "pciutils", "tar", "zstd"]
APT = "/etc/apt/apt.conf.d/80gpuquilt"
FOLDERS = ["/etc/gpuquilt", "/var/lib/gpuquilt", "/opt/llama.cpp", "/opt/llama.cpp/releases"]


@deploy("Base")
def prepare() -> None:
    """Leave the host ready for the other roles; touches no service."""
    files.put(
        name="apt waits for its lock",
        src=StringIO('// Unattended upgrades may hold the lock at first boot: wait, in seconds.\nDPkg::Lock::Timeout "600";\n'),
        dest=APT,
        mode="644",
    )
    packages(name="Packages", names=PACKAGES)
    server.user(name=f"System user {USER}", user=USER, system=True, home=HOME, shell="/usr/sbin/nologin", ensure_home=False)
    for folder in FOLDERS:
        files.directory(name=f"Folder {folder}", path=folder, mode="755")


@deploy("Base")
def remove() -> None:
    """Take back what `prepare` left, packages apart; after all other roles, whose records lie in the same folders."""
    no_user(name=f"No system user {USER}")
    remembered = [f"/var/lib/gpuquilt/{name}" for name in ("verified.json", "before.json", "models", "packages/base", "work")]
    paths = [APT, "/etc/gpuquilt", HOME, "/opt/llama.cpp", *remembered]
    no_paths(name="None of its files", paths=paths, folders=["/var/lib/gpuquilt/packages", "/var/lib/gpuquilt"])
