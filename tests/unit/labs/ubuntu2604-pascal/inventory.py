"""Ubuntu 26.04 with Pascal, no driver and Secure Boot: NVIDIA's repository has dropped it, Ubuntu has not."""

workers = [("desk", {"ssh_hostname": "192.168.1.25", "ssh_user": "root"})]
heads = workers

all = (
    [*workers],
    {
        "network": "192.168.1.0/24",
        "commit": "0c1e57098bba43ac29e6e3b677cdceebdd22334f",
        "model_source": "https://models.example/gpt-oss-20b-Q4_K_M.gguf",
        "model_sha256": "0000000000000000000000000000000000000000000000000000000000000000",
    },
)
