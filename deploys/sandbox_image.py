"""The container image that builds in a sandbox begin with: `pyinfra inventories/mixed.py deploys/sandbox_image.py`.

It is made in each machine with `runtime = "docker"`, once deploys/prepare.py has put Docker there.
"""

from pyinfra import host

from roles.sandbox import sandbox_image

if host.data.get("runtime") == "docker":
    sandbox_image(host.data.build_image)
