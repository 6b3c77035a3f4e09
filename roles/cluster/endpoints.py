"""RPC endpoints: what llama.cpp's client can reach, and what it cannot. Pure.

The client splits at the first colon and resolves IPv4 only, the server takes an IPv4 literal (llama.cpp,
ggml/src/ggml-rpc/transport.cpp); an endpoint that it cannot parse or reach aborts llama-server.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import AddressValueError, IPv4Address


def resolve(texts: Sequence[str], workers: Mapping[str, tuple[IPv4Address, int]]) -> tuple[list[str], list[str]]:
    """Check the endpoints of a head.

    :param texts: as the inventory has them, each `well_formed`
    :param workers: worker name in the inventory → its address in the cluster network and its port
    :return: ``address:port`` of each good one, in order, and what is wrong with the others, one sentence each
    """
    good: list[str] = []
    problems: list[str] = []
    for text in texts:
        try:
            endpoint = _resolve(text, workers)
        except ValueError as error:
            problems.append(f"endpoint {text!r} {error}")
            continue
        if endpoint in good:
            problems.append(f"endpoint {text!r} is listed twice: take one out, a worker serves one client at a time")
        else:
            good.append(endpoint)
    return good, problems


def well_formed(text: str) -> str:
    """The endpoint itself, for validators.

    :raises ValueError: no client could use it, whatever workers there are
    """
    if any(letter.isspace() for letter in text):
        raise ValueError("it has white space in it")
    if "//" in text:
        raise ValueError("it is a URL")
    if text.startswith("[") or text.count(":") > 1:
        raise ValueError("it is IPv6, which llama.cpp's RPC cannot use")
    name, _, port = text.partition(":")
    if not name:
        raise ValueError("it has no host")
    if not port.isascii() or not port.isdigit() or not 1 <= int(port) <= 65535:
        raise ValueError("it has no port from 1 to 65535")
    return text


def _resolve(text: str, workers: Mapping[str, tuple[IPv4Address, int]]) -> str:
    name, _, port = text.partition(":")
    address = workers[name][0] if name in workers else _address(name, workers)
    if (address, int(port)) not in workers.values():
        known = ", ".join(f"{address}:{port}" for address, port in workers.values())
        raise ValueError(f"is no worker of this inventory: these are {known}")
    return f"{address}:{int(port)}"


def _address(name: str, workers: Mapping[str, tuple[IPv4Address, int]]) -> IPv4Address:
    try:
        return IPv4Address(name)
    except AddressValueError:
        raise ValueError(f"names no worker of this inventory (these are {', '.join(workers)}) and is no IPv4 address") from None
