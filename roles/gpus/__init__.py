"""Who is there: the GPUs of a host, the health of their links, and what is known of their generations.

It leaves nothing on a host. `python -m roles.gpus FILE` says the same of a pasted lspci text.
"""
