"""The three machines that `make sandbox` makes on this computer: two workers and a head, as in any other inventory.

Copy it to describe machines of your own: most lines here only say where the sandbox has put things.
"""

import json
import os
from pathlib import Path

from pyinfra.api.exceptions import PyinfraError

# What the sandbox says of itself. Another one, made in another folder, is named by this variable.
_folder = Path(os.environ.get("GPUQUILT_SANDBOX_STATE", "/var/lib/gpuquilt-sandbox"))
try:
    _sandbox = json.loads((_folder / "machines.json").read_text())
except FileNotFoundError:
    raise PyinfraError(f"there is no sandbox in {_folder}: run make sandbox first.") from None

# A host is its name, and how it is reached by SSH.
_hosts = [
    (
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
]

# They lend their memory and processors: each runs an RPC server.
workers = [host for host in _hosts if "-w" in host[0]]

# It runs llama-server, the endpoint that everybody talks to.
heads = [host for host in _hosts if host[0].endswith("-head")]

# What holds for the whole cluster.
all = (
    [*workers, *heads],
    {
        # Only addresses in this network are used between the machines.
        "network": _sandbox["subnet"],
        # The llama.cpp that all machines run. Upgrade: change this line and run again.
        # The mirror has one older commit to come from: e3a74b299085cd00013804f7fca2e03441b2da20.
        "commit": "0c1e57098bba43ac29e6e3b677cdceebdd22334f",
        # Where llama.cpp comes from: here a mirror that the machines see; without this line, GitHub.
        "llama_cpp_repository": _sandbox["llama_cpp_repository"],
        # The model, and what its content must be.
        "model_source": _sandbox["model_source"],
        "model_sha256": "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        # Tokens that a conversation can have.
        "llama_server_context_size": 2048,
    },
)
