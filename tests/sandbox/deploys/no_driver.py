"""NVIDIA's driver taken back, as deploys/remove.py does it among the rest."""

from roles import nvidia

nvidia.remove()
