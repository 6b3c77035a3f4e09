"""What every host gets: the system user, our folders, the few packages that all roles need, and an apt that waits for its lock.

On the host: /etc/apt/apt.conf.d/80gpuquilt · /etc/gpuquilt/ · /var/lib/gpuquilt/ · /opt/llama.cpp/ · the user `llama` ·
/etc/apt/sources.list.d/gpuquilt-components.sources, where a role needs more of the distribution than the host has switched on.
"""

from io import StringIO

from pyinfra.api import deploy
from pyinfra.operations import files, server

from roles.base.machine import HOME, USER
from roles.base.operations import components, packages

PACKAGES = ["bash", "ca-certificates", "curl", "iproute2", "libgomp1", "nftables", "pciutils", "tar", "zstd"]
WAITS = "/etc/apt/apt.conf.d/80gpuquilt"
FOLDERS = ["/etc/gpuquilt", "/var/lib/gpuquilt", "/opt/llama.cpp", "/opt/llama.cpp/releases"]


@deploy("Base")
def prepare() -> None:
    """Leave the host ready for the other roles; touches no service."""
    files.put(
        name="apt waits for its lock",
        src=StringIO('// Unattended upgrades may hold the lock at first boot: wait, in seconds.\nDPkg::Lock::Timeout "600";\n'),
        dest=WAITS,
        mode="644",
    )
    packages(name="Packages", names=PACKAGES)
    server.user(name=f"System user {USER}", user=USER, system=True, home=HOME, shell="/usr/sbin/nologin", ensure_home=False)
    for folder in FOLDERS:
        files.directory(name=f"Folder {folder}", path=folder, mode="755")


@deploy("Base taken back")
def remove() -> None:
    """Take back what concerns apt, after all other roles; the few packages are ordinary tools, and they stay."""
    components(name="Components of the distribution", names=[])
    files.file(name="apt as it was", path=WAITS, present=False)
