"""The settings that an inventory describes hosts with: those of all roles but the cluster, which every look reads."""

from roles import docker, llama_cpp, llama_server, model, nvidia, rpc_server

MODELS = [llama_cpp.Settings, model.Settings, rpc_server.Settings, llama_server.Settings, docker.Settings, nvidia.Settings]
