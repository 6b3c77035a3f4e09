"""Take back what gpuquilt put on hosts: `pyinfra inventories/lab.py deploys/remove.py --data remove=llama_cpp,nvidia`.

Nothing is removed that is not named. With `--limit HOST` the other hosts are left alone.
"""

from roles import amd, base, cluster, docker, firewall, intel, llama_cpp, nvidia, passthrough, removal, rpc_server

asked = removal.asked()

if "llama_cpp" in asked:
    cluster.remove()
    firewall.remove()
    rpc_server.remove()
    llama_cpp.remove()
if "docker" in asked:
    docker.remove()
if "intel" in asked:
    intel.remove()
if "amd" in asked:
    amd.remove()
# After these, which may need components of the distribution that came with it.
if "nvidia" in asked:
    nvidia.remove()
if "passthrough" in asked:
    passthrough.remove()
if "llama_cpp" in asked:
    base.remove()
