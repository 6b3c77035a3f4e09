"""The reference lab: four machines at home. Copy this file, put your machines in, and run it from gpuquilt's folder."""

# Hypervisors give cards to their virtual machines, and get nothing else: leave the list empty if you have none.
hypervisors = [
    # Its GTX 1080 Ti is for a virtual machine; the address is the one at which lspci shows the card here.
    ("virtbase", {"ssh_hostname": "192.168.1.10", "ssh_user": "root", "passthrough": ["0e:00.0"]}),
]

# Workers lend their memory and processors: each runs an RPC server. A host is its name, and how it is reached.
workers = [
    # That virtual machine. Root logs in with a key: your agent's, ~/.ssh/id_*, or the one that `ssh_key` names.
    # `gpus` names the cards that it is to have, as `lspci -nn` prints them on the hypervisor: it is planned for them beforehand.
    (
        "gpu-1080ti",
        {
            "ssh_hostname": "192.168.1.21",
            "ssh_user": "root",
            "runs_on": "virtbase",
            "gpus": ["GP102 [GeForce GTX 1080 Ti] [10de:1b06]"],
        },
    ),
    # A laptop with an RTX 4080 Mobile. Its user logs in and uses sudo, which must not ask for a password.
    # `runtime` puts its worker into a container, with all that it is built with and needs; the other hosts run it natively.
    ("laptop", {"ssh_hostname": "192.168.1.22", "ssh_user": "me", "_sudo": True, "runtime": "docker"}),
    # If the laptop is the computer in front of you, take this line in place of the one above: no SSH is needed.
    # ("@local", {"_sudo": True, "runtime": "docker"}),
]

# The head runs llama-server, the endpoint that everybody talks to. It needs no GPU, and may be a worker as well.
heads = [("rpc-main", {"ssh_hostname": "192.168.1.20", "ssh_user": "root", "runs_on": "virtbase"})]

# What holds for all hosts. A key in a host's own dictionary, above, wins over the same key here.
all = (
    [*hypervisors, *workers, *heads],
    {
        # The network between the machines: each worker listens on its address in it, and lets in the heads alone.
        "network": "192.168.1.0/24",
        # The llama.cpp commit that every host runs, in full. Upgrade: change this line and run again.
        "commit": "0c1e57098bba43ac29e6e3b677cdceebdd22334f",
        # A new driver and a card that is passed through need a reboot: "when-owed" lets a run do it, one host at a time.
        "reboot": "never",
        # The model, which the head downloads; a path on the head, such as "/data/model.gguf", is used where it lies.
        "model_source": "https://huggingface.co/unsloth/gpt-oss-20b-GGUF/resolve/main/gpt-oss-20b-Q4_K_M.gguf",
        # Its SHA-256: the page of the file shows it, and `sha256sum FILE` prints it. Nothing is done until you put it here.
        "model_sha256": "PUT THE SHA-256 OF THE MODEL HERE",
        # Tokens that a conversation can have.
        "llama_server_context_size": 131072,
    },
)
