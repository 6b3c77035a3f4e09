"""Docker taken back alone: what deploys/remove.py does for it, and no more."""

from roles import docker

docker.remove()
