"""An Intel Arc in one machine, Pascal in another."""

workers = [
    ("tower", {"ssh_hostname": "192.168.1.23", "ssh_user": "root"}),
    ("gpu-1080ti", {"ssh_hostname": "192.168.1.21", "ssh_user": "root"}),
]
heads = [("rpc-main", {"ssh_hostname": "192.168.1.20", "ssh_user": "root"})]

all = (
    [*workers, *heads],
    {
        "network": "192.168.1.0/24",
        "commit": "0c1e57098bba43ac29e6e3b677cdceebdd22334f",
        "model_source": "https://models.example/gpt-oss-20b-Q4_K_M.gguf",
        "model_sha256": "0000000000000000000000000000000000000000000000000000000000000000",
    },
)
