"""The way out of one-box: Pascal is passed through to a virtual machine on the same box, which has not got it yet."""

_box = ("box", {"ssh_hostname": "192.168.1.30", "ssh_user": "me", "_sudo": True, "passthrough": ["01:00.0"]})
hypervisors = [_box]
workers = [_box, ("pascal-vm", {"ssh_hostname": "192.168.1.31", "ssh_user": "root", "gpus": ["GP102"], "runs_on": "box"})]
heads = [_box]

all = (
    [*workers],
    {
        "network": "192.168.1.0/24",
        "commit": "0c1e57098bba43ac29e6e3b677cdceebdd22334f",
        "model_source": "https://models.example/gpt-oss-20b-Q4_K_M.gguf",
        "model_sha256": "0000000000000000000000000000000000000000000000000000000000000000",
    },
)
