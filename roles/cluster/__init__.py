"""The cluster as a whole: its settings, the plan, and the lock-step switch of all hosts from one release to another.

On the host: /var/lib/gpuquilt/verified.json (the state that answered last) · /var/lib/gpuquilt/before.json (the one before).
Knows no role: what a role puts on a host reaches it as a release name and the text of units.
"""

from pyinfra.api import deploy

from roles.cluster import operations, reboot_operations
from roles.cluster.operations import Ready
from roles.cluster.state import LLAMA_SERVER, RPC_SERVER


@deploy("Reboot")
def reboot() -> None:
    """Reboot what cannot go on without it, one host at a time, or stop there; see the setting `reboot`.

    To be called on every host that was looked at, once everything is prepared that may ask for a reboot. What is called after
    it asks the hosts anew.
    """
    reboot_operations.look_again(name="What a reboot is owed for")
    reboot_operations.refuse(name="What must not be rebooted")
    # For all waits together, whatever `_timeout` the inventory has for single commands.
    forever = reboot_operations.LONGEST
    reboot_operations.reboot(name="Hypervisors, one at a time", hypervisor=True, _serial=True, _timeout=forever)
    reboot_operations.reboot(name="Others, one at a time", hypervisor=False, _serial=True, _timeout=forever)


@deploy("Services")
def remove() -> None:
    """Stop and remove the services; a unit of the same name that is not ours stays."""
    operations.no_units(name="No services of ours")


@deploy("Switch")
def switch(ready: Ready) -> None:
    """Bring all hosts to what their roles have offered, in lock step, or back."""
    operations.want(name="What runs, and what should")
    _lock_step(ready)


@deploy("Roll back")
def roll_back(ready: Ready) -> None:
    """Bring all hosts back to what they ran before the last switch, in lock step."""
    operations.want_before(name="What ran before")
    _lock_step(ready)


def _lock_step(ready: Ready) -> None:
    operations.stop_heads(name="Stop the heads")
    operations.start(name="Switch the workers", unit=RPC_SERVER, ready=ready)
    operations.start(name="Switch the heads", unit=LLAMA_SERVER, ready=ready)
    operations.take_back(name="Take back the workers", unit=RPC_SERVER, ready=ready)
    operations.take_back(name="Take back the heads", unit=LLAMA_SERVER, ready=ready)
    operations.remember(name="Remember what answered")
    operations.conclude(name="Result of the switch")
