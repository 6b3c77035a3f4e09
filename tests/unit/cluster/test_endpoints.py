"""Endpoints as users write them."""

from ipaddress import IPv4Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roles.cluster.endpoints import resolve

WORKERS = {"w1": (IPv4Address("192.0.2.11"), 50052), "w2": (IPv4Address("192.0.2.12"), 50053)}


def test_a_worker_is_named_as_in_the_inventory_or_by_its_address() -> None:
    assert resolve(["w2:50053", "192.0.2.11:50052"], WORKERS) == (["192.0.2.12:50053", "192.0.2.11:50052"], [])


def test_what_users_were_seen_to_write() -> None:
    texts = ["w1:50052", "[2001:db8::1]:50052", ":50052", "192.0.2.11:0", "192.0.2.11:50052", "192.0.2.11:50052 "]
    good, problems = resolve(texts, WORKERS)
    assert good == ["192.0.2.11:50052"]
    assert problems == [
        "endpoint '[2001:db8::1]:50052' is IPv6, which llama.cpp's RPC cannot use: write an IPv4 address and a port, host:port",
        "endpoint ':50052' has no host: write host:port",
        "endpoint '192.0.2.11:0' has no port from 1 to 65535: write host:port, e.g. 192.168.1.11:50052",
        "endpoint '192.0.2.11:50052' is listed twice: take one out, a worker serves one client at a time",
        "endpoint '192.0.2.11:50052 ' has white space in it: write host:port",
    ]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("w1", "has no port from 1 to 65535"),
        ("w1:", "has no port from 1 to 65535"),
        ("w1:65536", "has no port from 1 to 65535"),
        ("w1:-1", "has no port from 1 to 65535"),
        ("w1:rpc", "has no port from 1 to 65535"),
        ("w1:٥٠٠٥٢", "has no port from 1 to 65535"),
        ("w1:+50052", "has no port from 1 to 65535"),
        ("", "has no host"),
        ("::1", "is IPv6"),
        ("2001:db8::1:50052", "is IPv6"),
        (" w1:50052", "has white space in it"),
        ("w1: 50052", "has white space in it"),
        ("w1\t:50052", "has white space in it"),
        ("w3:50052", "names no worker of this inventory (these are w1, w2) and is no IPv4 address"),
        ("192.0.2.011:50052", "names no worker of this inventory (these are w1, w2) and is no IPv4 address"),
        ("192.0.2.300:50052", "names no worker of this inventory (these are w1, w2) and is no IPv4 address"),
        ("http://w1:50052", "is a URL: write host:port alone"),
        ("192.0.2.13:50052", "is no worker of this inventory: these are 192.0.2.11:50052, 192.0.2.12:50053"),
        ("127.0.1.1:50052", "is no worker of this inventory: these are 192.0.2.11:50052, 192.0.2.12:50053"),
        ("w1:50053", "is no worker of this inventory: these are 192.0.2.11:50052, 192.0.2.12:50053"),
    ],
)
def test_one_sentence_says_what_is_wrong_with_an_endpoint(text: str, why: str) -> None:
    good, problems = resolve([text], WORKERS)
    assert good == []
    (problem,) = problems
    assert problem.startswith(f"endpoint {text!r} {why}")


def test_a_worker_by_name_and_by_address_is_one_worker() -> None:
    good, (problem,) = resolve(["192.0.2.11:50052", "w1:50052"], WORKERS)
    assert good == ["192.0.2.11:50052"]
    assert problem == "endpoint 'w1:50052' is listed twice: take one out, a worker serves one client at a time"


@given(st.lists(st.text() | st.from_regex(r"(w1|192\.0\.2\.1[0-9]):[0-9]+", fullmatch=True)))
def test_every_endpoint_is_good_once_or_refused_with_one_line(texts: list[str]) -> None:
    good, problems = resolve(texts, WORKERS)
    assert len(good) + len(problems) == len(texts)
    assert len(set(good)) == len(good)
    assert set(good) <= {"192.0.2.11:50052", "192.0.2.12:50053"}
    assert not any("\n" in problem for problem in problems)
