"""What every pyinfra run in this folder obeys; pyinfra reads it from the working directory, before the inventory."""

from pyinfra import config, state

from roles.base.connection import ask_nobody, quick_ssh, stop_when_unreachable

config.REQUIRE_PYINFRA_VERSION = "~=3.10.0"
# One failed host stops the run for all: nothing may ever be done to half a cluster.
config.FAIL_PERCENT = 0

ask_nobody()
state.should_raise_failed_hosts = stop_when_unreachable
quick_ssh()
