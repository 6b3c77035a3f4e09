"""The reference lab: Pascal in a virtual machine, an Ada laptop with the desktop on it, and a head without a GPU."""

hypervisors = [("virtbase", {"ssh_hostname": "192.168.1.10", "ssh_user": "root", "passthrough": ["0e:00.0"]})]
workers = [
    ("gpu-1080ti", {"ssh_hostname": "192.168.1.21", "ssh_user": "root", "gpus": ["10de:1b06"], "runs_on": "virtbase"}),
    ("laptop", {"ssh_hostname": "192.168.1.22", "ssh_user": "me", "_sudo": True}),
]
heads = [("rpc-main", {"ssh_hostname": "192.168.1.20", "ssh_user": "root", "runs_on": "virtbase"})]

all = (
    [*hypervisors, *workers, *heads],
    {
        "network": "192.168.1.0/24",
        "commit": "0c1e57098bba43ac29e6e3b677cdceebdd22334f",
        "model_source": "https://models.example/gpt-oss-20b-Q4_K_M.gguf",
        "model_sha256": "0000000000000000000000000000000000000000000000000000000000000000",
    },
)
