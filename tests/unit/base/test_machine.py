"""What a host is, read from what it printed."""

import subprocess
from ipaddress import IPv4Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roles.base.machine import COMMAND, V2_FLAGS, V3_FLAGS, Identity, Machine, cpu_level, parse, parse_identity

DEBIAN = [
    "user 1000",
    "sudo sudo: a password is required",
    "account /home/llama",
    "architecture x86_64",
    "boot_id 6ba0e7f1-7a4c-4b1a-9d53-0f6f3f1f4d11",
    "systemd yes",
    'os PRETTY_NAME "Debian GNU/Linux 13 (trixie)"',
    'os VERSION_ID "13"',
    "os ID debian",
    f"flags fpu {' '.join(sorted(V3_FLAGS))} avx512f",
    "address 192.168.1.11/24",
    "address 10.0.0.7/8",
]


def test_the_user_in_numbers() -> None:
    assert parse_identity(["995", "994", "994 109 44", "000001ffffffffff"]) == Identity(995, 994, (44, 109))


def test_a_host_that_is_itself_a_container_cannot_give_more_than_it_has() -> None:
    assert not parse_identity(["995", "994", "994", "000001fffeffffff"]).unlimited


def test_a_debian_host_reached_as_a_user_whose_sudo_wants_a_password() -> None:
    assert parse(DEBIAN) == Machine(
        root=False,
        sudo="sudo: a password is required",
        account="/home/llama",
        architecture="x86_64",
        boot_id="6ba0e7f1-7a4c-4b1a-9d53-0f6f3f1f4d11",
        systemd=True,
        os_id="debian",
        os_version="13",
        os_name="Debian GNU/Linux 13 (trixie)",
        cpu_level="v3",
        addresses=(IPv4Address("192.168.1.11"), IPv4Address("10.0.0.7")),
    )


def test_the_command_says_of_this_computer_what_this_computer_says() -> None:
    output = subprocess.run(["sh", "-c", COMMAND], capture_output=True, text=True, check=False).stdout.splitlines()
    machine = parse(output)
    user = subprocess.run(["id", "-u"], capture_output=True, text=True, check=True).stdout.strip()
    assert machine.root == (user == "0")
    assert machine.architecture == subprocess.run(["uname", "-m"], capture_output=True, text=True, check=True).stdout.strip()
    assert machine.boot_id
    assert machine.os_id
    assert machine.os_name


def test_a_host_that_says_nothing_is_no_machine_that_we_could_use() -> None:
    machine = parse([])
    assert not machine.root
    assert not machine.systemd
    assert machine.cpu_level == "v1"
    assert machine.addresses == ()


@pytest.mark.parametrize(
    ("flags", "level"),
    [
        (V3_FLAGS, "v3"),
        (V3_FLAGS | {"avx512f"}, "v3"),
        (V3_FLAGS - {"avx2"}, "v2"),
        (V3_FLAGS - {"abm"}, "v2"),
        (V2_FLAGS, "v2"),
        (V2_FLAGS - {"sse4_2"}, "v1"),
        (V3_FLAGS - {"popcnt"}, "v1"),
        (frozenset(), "v1"),
    ],
)
def test_the_cpu_level_is_the_highest_whose_flags_are_all_there(flags: frozenset[str], level: str) -> None:
    assert cpu_level(sorted(flags)) == level


@pytest.mark.parametrize(
    ("line", "name"),
    [("os ID debian", "debian"), ('os ID "ubuntu"', "ubuntu"), ("os ID 'arch'", "arch"), ('os ID "broken', '"broken')],
)
def test_os_release_is_read_with_and_without_quotes(line: str, name: str) -> None:
    assert parse([line]).os_id == name


def test_addresses_that_make_no_sense_are_passed_over() -> None:
    machine = parse(["address fe80::1/64", "address 300.1.1.1/24", "address"])
    assert machine.addresses == ()


WORDS = st.sampled_from(["user", "sudo", "os", "flags", "address", "systemd", "unfinished"])


@given(st.lists(st.text() | st.builds("{} {}".format, WORDS, st.text())))
def test_parsing_never_raises(lines: list[str]) -> None:
    assert isinstance(parse(lines), Machine)
