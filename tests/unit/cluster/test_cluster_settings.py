"""The cluster's own settings."""

from typing import Any

import pytest

from roles.base.settings import HostData, read_settings
from roles.cluster.settings import Settings
from tests.unit.cluster.examples import NEWER

GOOD = {"commit": NEWER, "network": "192.168.1.0/24"}


def problems(**changes: Any) -> list[str]:
    return read_settings([Settings], [HostData("w1", frozenset({"workers"}), GOOD | changes)])[1]


def test_a_commit_and_a_network_are_enough() -> None:
    assert problems() == []


@pytest.mark.parametrize(
    ("key", "value", "right"),
    [
        ("commit", "2222222", "all 40 hexadecimal digits"),
        ("commit", "2" * 41, "all 40 hexadecimal digits"),
        ("commit", "2" * 40 + "\n", "all 40 hexadecimal digits"),
        ("commit", "A" * 40, "all 40 hexadecimal digits"),
        ("commit", "master", "all 40 hexadecimal digits"),
        ("commit", 2, "all 40 hexadecimal digits"),
        ("network", "192.168.1.7/24", "in CIDR notation, e.g. 192.168.1.0/24"),
        ("network", "fd00::/64", "in CIDR notation, e.g. 192.168.1.0/24"),
        ("network", "home", "in CIDR notation, e.g. 192.168.1.0/24"),
        ("address", "192.168.1.300", "this host's IPv4 address"),
        ("rpc_port", 0, "1 to 65535"),
        ("rpc_port", "fast", "1 to 65535"),
        ("http_port", 65536, "1 to 65535"),
        ("endpoints", "w1:50052", "each as host:port"),
        ("endpoints", [7], "each as host:port"),
        ("endpoints", [":50052"], "each as host:port"),
        ("cmake_options", {"A=1; touch /tmp/x; #": "ON"}, "a dictionary such as"),
        ("backend", "metal", "cuda (NVIDIA), hip (AMD), sycl (Intel), vulkan (any of them) or cpu"),
        ("gpus", ["RTX 4080"], "what `lspci -nn` prints of the card on the machine that has it, as a rule the hypervisor"),
        ("gpus", ["10de:1b06 10de:2d04"], "it names several GPUs"),
        ("gpus", "GP102", "a list with one text for each, such as ['10de:1b06']"),
        ("passthrough", ["0e:00"], "such as ['0e:00.0'], which begin the lines that `lspci` prints on this host"),
        ("passthrough", ["10de:1b06"], "a list of PCI addresses"),
        ("driver", "newest", "the branch of NVIDIA's driver, e.g. 580"),
        ("driver", "580.95", "the branch of NVIDIA's driver, e.g. 580"),
        ("driver_source", "debian", "distribution (its own packages)"),
        ("driver_flavour", "closed", "open or proprietary"),
        ("cuda_toolkit", 12, "a minor release such as '12.9'"),
        ("cuda_toolkit", "12.9.1", "a minor release such as '12.9'"),
        ("cuda_architectures", ["native"], "never native"),
        ("cuda_architectures", [], "default: those of the GPUs"),
        ("cuda_graphs", "perhaps", "true or false"),
        ("build_image", "", "the container image that llama.cpp is built in"),
        ("web_ui", "perhaps", "true or false"),
        ("cmake_options", ["GGML_LTO"], "a dictionary such as {'GGML_LTO': 'ON'}"),
    ],
)
def test_a_bad_value_is_answered_with_key_value_and_what_would_be_right(key: str, value: object, right: str) -> None:
    (problem,) = problems(**{key: value})
    assert problem.startswith(f"w1: {key} = ")
    assert "is not valid (" in problem
    assert right in problem
    assert "\n" not in problem


def test_an_address_without_a_domain_is_in_the_first_one() -> None:
    settings = Settings(**GOOD, passthrough=["0e:00.0", "0001:83:00.0", "0F:00.0"])
    assert settings.passthrough == ["0000:0e:00.0", "0001:83:00.0", "0000:0f:00.0"]


@pytest.mark.parametrize("key", ["commit", "network"])
def test_what_must_be_there_is_named_when_it_is_not(key: str) -> None:
    data = {name: value for name, value in GOOD.items() if name != key}
    _, (problem,) = read_settings([Settings], [HostData("w1", frozenset({"workers"}), data)])
    assert problem.startswith(f"w1: the setting {key} is missing: ")


def test_every_setting_says_what_would_be_right() -> None:
    assert all(field.description for field in Settings.model_fields.values())


@pytest.mark.parametrize("value", [580, "580"])
def test_a_branch_is_a_number_with_or_without_quotes(value: int | str) -> None:
    settings, _ = read_settings([Settings], [HostData("w1", frozenset({"workers"}), GOOD | {"driver": value})])
    assert settings["w1"][Settings].driver == 580


@pytest.mark.parametrize("value", [12.9, "12.9"])
def test_a_toolkit_may_be_given_on_the_command_line(value: float | str) -> None:
    """There it becomes a number."""
    settings, _ = read_settings([Settings], [HostData("w1", frozenset({"workers"}), GOOD | {"cuda_toolkit": value})])
    assert settings["w1"][Settings].cuda_toolkit == "12.9"
