"""The four machines that `make sandbox-mixed` makes on this computer: workers of three kinds, and a head."""

import json
from pathlib import Path

from pyinfra.api.exceptions import PyinfraError

# What the sandbox says of itself.
_folder = Path("/var/lib/gpuquilt-sandbox-mixed")
try:
    _sandbox = json.loads((_folder / "machines.json").read_text())
except FileNotFoundError:
    raise PyinfraError(f"there is no sandbox in {_folder}: run make sandbox-mixed first.") from None

# How each is reached by SSH, by the last word of its name.
_reached = {
    machine["name"].rpartition("-")[2]: (
        machine["name"],
        {
            "ssh_hostname": machine["address"],
            "ssh_user": "root",
            "ssh_key": machine["ssh_key"],
            # The machines' own keys are known from the day they were made: another one is refused.
            "ssh_known_hosts_file": machine["known_hosts"],
            "ssh_strict_host_key_checking": "yes",
        },
    )
    for machine in _sandbox["machines"]
}


def _host(name, **settings):
    """A host with settings of its own."""
    full_name, connection = _reached[name]
    return (full_name, connection | settings)


workers = [
    # Debian 12; it computes with its processors, by programs that it has built itself.
    _host("cpu"),
    # Debian 13; it computes with Vulkan, as a GPU would: Mesa's llvmpipe plays one with the processors.
    _host("vulkan", backend="vulkan", vulkan_software=True),
    # Debian 13; it computes with its processors, in a container. No registry is asked: `make sandbox-mixed` makes the image that
    # its own image is built from. With a registry, leave the two images out, or name your own.
    _host("docker", runtime="docker", build_image="gpuquilt/debian:13", runtime_image="gpuquilt/debian:13"),
]

# It runs llama-server, the endpoint that everybody talks to.
heads = [_host("head")]

# What holds for the whole cluster; inventories/sandbox.py says more of it.
all = (
    [*workers, *heads],
    {
        "network": _sandbox["subnet"],
        "commit": "0c1e57098bba43ac29e6e3b677cdceebdd22334f",
        "llama_cpp_repository": _sandbox["llama_cpp_repository"],
        "model_source": _sandbox["model_source"],
        "model_sha256": "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        "llama_server_context_size": 2048,
    },
)
