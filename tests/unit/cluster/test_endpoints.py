"""Endpoints as users write them."""

import re
from ipaddress import IPv4Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roles.cluster.endpoints import resolve, well_formed

WORKERS = {"w1": (IPv4Address("192.0.2.11"), 50052), "w2": (IPv4Address("192.0.2.12"), 50053)}


def test_a_worker_is_named_as_in_the_inventory_or_by_its_address() -> None:
    assert resolve(["w2:50053", "192.0.2.11:50052"], WORKERS) == (["192.0.2.12:50053", "192.0.2.11:50052"], [])


def test_what_users_were_seen_to_write() -> None:
    """The list of field report A10: four entries that nothing can use, and a duplicate."""
    texts = ["w1:50052", "[2001:db8::1]:50052", ":50052", "192.0.2.11:0", "192.0.2.11:50052", "192.0.2.11:50052 "]
    assert [text for text in texts if not is_well_formed(text)] == [texts[1], texts[2], texts[3], texts[5]]
    assert resolve([texts[0], texts[4]], WORKERS) == (
        ["192.0.2.11:50052"],
        ["endpoint '192.0.2.11:50052' is listed twice: take one out, a worker serves one client at a time"],
    )


def is_well_formed(text: str) -> bool:
    try:
        return well_formed(text) == text
    except ValueError:
        return False


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("w1", "it has no port from 1 to 65535"),
        ("w1:", "it has no port from 1 to 65535"),
        ("w1:65536", "it has no port from 1 to 65535"),
        ("w1:-1", "it has no port from 1 to 65535"),
        ("w1:rpc", "it has no port from 1 to 65535"),
        ("w1:٥٠٠٥٢", "it has no port from 1 to 65535"),
        ("w1:+50052", "it has no port from 1 to 65535"),
        ("", "it has no host"),
        ("::1", "it is IPv6"),
        ("2001:db8::1:50052", "it is IPv6"),
        (" w1:50052", "it has white space in it"),
        ("w1: 50052", "it has white space in it"),
        ("w1\t:50052", "it has white space in it"),
        ("http://w1:50052", "it is a URL"),
    ],
)
def test_an_endpoint_that_no_client_could_use(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(why)):
        well_formed(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("w3:50052", "names no worker of this inventory (these are w1, w2) and is no IPv4 address"),
        ("192.0.2.011:50052", "names no worker of this inventory (these are w1, w2) and is no IPv4 address"),
        ("192.0.2.300:50052", "names no worker of this inventory (these are w1, w2) and is no IPv4 address"),
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
    texts = [text for text in texts if is_well_formed(text)]
    good, problems = resolve(texts, WORKERS)
    assert len(good) + len(problems) == len(texts)
    assert len(set(good)) == len(good)
    assert set(good) <= {"192.0.2.11:50052", "192.0.2.12:50053"}
    assert not any("\n" in problem for problem in problems)
