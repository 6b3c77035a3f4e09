"""The inventory's data becomes settings, or a list of problems that a user can act on."""

from typing import Any, ClassVar

from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, field_validator, model_validator

from roles.base.settings import HostData, RoleSettings, read_settings

FOREIGN = frozenset({"ssh_user", "ssh_key", "_sudo", "_sudo_user", "_timeout"})


class Cluster(RoleSettings):
    """Settings without a prefix."""

    commit: str = Field(pattern=r"^[0-9a-f]{40}$", description="all 40 hexadecimal digits")
    rpc_port: int = Field(50052, ge=1, le=65535, description="a TCP port, 1 to 65535")
    endpoints: list[str] | None = Field(None, description="a list of host:port")


class Head(RoleSettings):
    """Settings of heads alone."""

    prefix: ClassVar[str] = "head_"
    groups: ClassVar[frozenset[str]] = frozenset({"heads"})

    model: str = Field(description="the model's file name")
    context: int = Field(4096, description="tokens")
    slots: int = Field(1, description="how many requests at once")

    @field_validator("model")
    @classmethod
    def _gguf(cls, value: str) -> str:
        if not value.endswith(".gguf"):
            raise ValueError("it is no GGUF file.")
        return value

    @model_validator(mode="after")
    def _enough(self) -> "Head":
        if self.context < self.slots * 512:
            raise ValueError("head_context is too small for head_slots: give each slot 512 tokens.")
        return self


COMMIT = "0123456789abcdef0123456789abcdef01234567"


def host(name: str = "w1", *groups: str, **data: Any) -> HostData:
    return HostData(name, frozenset(groups), data)


def problems(*hosts: HostData) -> list[str]:
    return read_settings([Cluster, Head], hosts, FOREIGN)[1]


def test_good_data_becomes_one_object_per_role_with_defaults_filled_in() -> None:
    settings, found = read_settings(
        [Cluster, Head],
        [
            host("w1", "workers", commit=COMMIT, rpc_port=50053, ssh_user="me", _sudo=True),
            host("h", "heads", commit=COMMIT, head_model="m.gguf"),
        ],
        FOREIGN,
    )
    assert found == []
    assert settings["w1"][Cluster].rpc_port == 50053
    assert settings["h"][Cluster].rpc_port == 50052
    assert settings["h"][Head].model == "m.gguf"


def test_settings_of_a_group_are_not_asked_of_other_hosts() -> None:
    assert problems(host("w1", "workers", commit=COMMIT)) == []


def test_settings_of_a_group_may_stand_in_the_data_of_all_hosts() -> None:
    assert problems(host("w1", "workers", commit=COMMIT, head_model="m.gguf")) == []


def test_a_misspelled_setting_is_answered_with_the_right_one() -> None:
    assert problems(host(commit=COMMIT, rcp_port=50053)) == ["w1: there is no setting 'rcp_port': did you mean 'rpc_port'?"]


def test_a_misspelled_setting_of_another_group_is_found_too() -> None:
    assert problems(host(commit=COMMIT, head_contxt=1)) == ["w1: there is no setting 'head_contxt': did you mean 'head_context'?"]


def test_a_misspelled_key_of_pyinfra_is_answered_with_the_right_one() -> None:
    assert problems(host(commit=COMMIT, ssh_usr="me", _sudoo=True)) == [
        "w1: there is no setting '_sudoo': did you mean '_sudo'?",
        "w1: there is no setting 'ssh_usr': did you mean 'ssh_user'?",
    ]


def test_a_setting_like_nothing_that_we_know_is_answered_with_the_way_out() -> None:
    assert problems(host(commit=COMMIT, location="attic")) == [
        "w1: there is no setting 'location': take it out, or begin its name with '_' if it is yours."
    ]


def test_a_users_own_key_begins_with_an_underscore() -> None:
    assert problems(host(commit=COMMIT, _location="attic")) == []


def test_a_missing_setting_is_named_with_what_would_be_right() -> None:
    assert problems(host("h", "heads", commit=COMMIT)) == ["h: the setting head_model is missing: the model's file name."]


def test_a_wrong_type_is_named_with_the_value_and_what_would_be_right() -> None:
    (problem,) = problems(host(commit=COMMIT, rpc_port="fast"))
    assert problem.startswith("w1: rpc_port = 'fast' is not valid (")
    assert problem.endswith("): a TCP port, 1 to 65535.")


def test_a_value_out_of_range_is_named() -> None:
    (problem,) = problems(host(commit=COMMIT, rpc_port=65536))
    assert problem == "w1: rpc_port = 65536 is not valid (Input should be less than or equal to 65535): a TCP port, 1 to 65535."


def test_a_short_commit_is_named() -> None:
    (problem,) = problems(host(commit="0123456"))
    assert problem == "w1: commit = '0123456' is not valid (it is not of that form): all 40 hexadecimal digits."


def test_a_wrong_element_of_a_list_is_named_by_its_key() -> None:
    (problem,) = problems(host(commit=COMMIT, endpoints=["w1:50052", 7]))
    assert problem.startswith("w1: endpoints = 7 is not valid (")


def test_one_value_in_place_of_a_list_is_named() -> None:
    (problem,) = problems(host(commit=COMMIT, endpoints="w1:50052"))
    assert problem.startswith("w1: endpoints = 'w1:50052' is not valid (it is no list: put [ ] around it): ")


def test_what_a_role_refuses_reads_as_one_sentence() -> None:
    assert problems(host("h", "heads", commit=COMMIT, head_model="m.bin")) == [
        "h: head_model = 'm.bin' is not valid (it is no GGUF file): the model's file name."
    ]


def test_settings_that_do_not_go_together_are_refused_with_the_roles_own_sentence() -> None:
    assert problems(host("h", "heads", commit=COMMIT, head_model="m.gguf", head_context=512, head_slots=4)) == [
        "h: head_context is too small for head_slots: give each slot 512 tokens."
    ]


def test_all_problems_of_all_hosts_are_found_at_once() -> None:
    found = problems(host("w1", commit="abc", rcp_port=1), host("h", "heads", rpc_port=0))
    assert [problem.partition(":")[0] for problem in found] == ["w1", "w1", "h", "h", "h"]


def test_the_same_problem_of_several_hosts_is_said_once() -> None:
    assert problems(host("w1", commit=COMMIT, colour=1), host("w2", commit=COMMIT, colour=1)) == [
        "w1, w2: there is no setting 'colour': take it out, or begin its name with '_' if it is yours."
    ]


def test_a_host_with_a_problem_has_no_settings_and_the_others_do() -> None:
    settings, _ = read_settings([Cluster], [host("w1", commit="abc"), host("w2", commit=COMMIT)], FOREIGN)
    assert list(settings) == ["w2"]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(
    st.dictionaries(
        st.sampled_from(["commit", "rpc_port", "endpoints", "head_model", "head_context", "ssh_user", "_sudo"]) | st.text(),
        VALUES,
        max_size=6,
    ),
)
def test_no_data_makes_it_raise_and_each_problem_is_one_line_that_names_the_host(data: dict[str, Any]) -> None:
    settings, found = read_settings([Cluster, Head], [HostData("w1", frozenset({"heads"}), data)], FOREIGN)
    assert bool(found) != ("w1" in settings)
    for problem in found:
        assert problem.startswith("w1: ")
        assert "\n" not in problem
