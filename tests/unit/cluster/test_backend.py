"""What a host computes with: which GPUs, by which backend, and which are left out."""

from dataclasses import replace
from typing import Any

import pytest

from roles.cluster.backend import title
from roles.cluster.plan import Host, Plan
from roles.gpus.catalog import load
from roles.gpus.gpu import Gpu, declared
from roles.gpus.link import Link, Verdict
from tests.unit.cluster.examples import (
    ADA,
    ARC,
    BLACKWELL,
    INTEGRATED,
    KEPLER,
    NAVI,
    NAVI_22,
    PASCAL,
    gpu_worker,
    gpus,
    head,
    host,
    machine,
    plan_of,
    refusals_of,
)

QXL = "00:01.0 VGA compatible controller [0300]: Red Hat, Inc. QXL paravirtual graphic card [1b36:0100] (rev 05)"
UNKNOWN = "09:00.0 VGA compatible controller [0300]: NVIDIA Corporation Device [10de:ffff] (rev a1)"
STRIX = "c5:00.0 Display controller [0380]: Advanced Micro Devices, Inc. [AMD/ATI] Strix Halo [1002:1586] (rev c1)"


def planned(*hosts: Host) -> Plan:
    """The plan with a head that needs nothing."""
    return plan_of([*hosts, head()])


def backend(*texts: str, system: str = "ubuntu24.04", **settings: Any) -> str:
    return planned(gpu_worker(*texts, system=system, **settings)).hosts["w1"].compute.backend


@pytest.mark.parametrize(
    ("texts", "system", "wanted"),
    [
        ([], "debian13", "cpu"),
        ([PASCAL], "debian13", "cuda"),
        ([NAVI], "ubuntu24.04", "hip"),
        ([NAVI], "debian13", "vulkan"),
        ([ARC], "ubuntu24.04", "sycl"),
        ([ARC], "debian12", "vulkan"),
        ([ARC], "ubuntu25.10", "vulkan"),
        ([INTEGRATED], "ubuntu24.04", "cpu"),
        ([STRIX], "ubuntu24.04", "cpu"),
        ([QXL], "debian13", "cpu"),
        ([ARC, PASCAL], "ubuntu24.04", "cuda"),
        ([ARC, KEPLER], "ubuntu24.04", "sycl"),
        ([INTEGRATED, NAVI], "ubuntu24.04", "hip"),
        ([NAVI_22], "ubuntu24.04", "vulkan"),
    ],
)
def test_the_gpus_decide(texts: list[str], system: str, wanted: str) -> None:
    assert backend(*texts, system=system) == wanted


def test_where_vulkan_is_the_second_best_the_plan_says_so() -> None:
    plan = planned(gpu_worker(ARC, system="debian13"), gpu_worker(NAVI_22, name="w2", address="192.0.2.12", system="ubuntu24.04"))
    assert plan.machines["w1"].choices == ("vulkan in place of sycl, for which Debian 13 has no packages",)
    (choice,) = plan.machines["w2"].choices
    assert choice.startswith("vulkan in place of hip, whose libraries have no code for 0000:0b:00.0 ")


def test_a_setting_wins_and_is_said() -> None:
    plan = planned(gpu_worker(ARC, PASCAL, system="ubuntu24.04", backend="vulkan"))
    assert plan.hosts["w1"].compute.backend == "vulkan"
    assert [gpu.chip for gpu in plan.machines["w1"].gpus] == ["GP102", "DG2"]
    assert plan.machines["w1"].choices == ("backend = 'vulkan' from the inventory, in place of cuda",)


def test_an_integrated_gpu_computes_where_it_is_asked_to() -> None:
    plan = planned(gpu_worker(STRIX, system="ubuntu24.04", backend="hip"))
    assert plan.hosts["w1"].compute.architectures == ("gfx1151",)
    beside_a_card = planned(gpu_worker(STRIX, NAVI, system="ubuntu24.04", backend="hip")).hosts["w1"]
    assert (beside_a_card.compute.architectures, beside_a_card.gpus) == (("gfx1201",), 1)


def test_the_processors_compute_where_they_are_asked_to() -> None:
    plan = planned(gpu_worker(PASCAL, backend="cpu"))
    assert plan.hosts["w1"].profile.name == planned(gpu_worker()).hosts["w1"].profile.name
    assert plan.machines["w1"].driver is None
    assert [out.reason for out in plan.machines["w1"].left_out] == ["the processors compute here"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (INTEGRATED, "integrated: it has no memory of its own"),
        (QXL, "no GPU that llama.cpp computes with"),
        (UNKNOWN, "not in the catalog"),
        (ARC, "cuda does not compute with it; vulkan would"),
        (KEPLER, "too old: no CUDA toolkit of the catalog compiles for kepler (compute capability 3.0)"),
    ],
)
def test_what_is_left_out_has_its_reason(text: str, reason: str) -> None:
    there = planned(gpu_worker(ADA, text, system="ubuntu24.04")).machines["w1"]
    assert [gpu.chip for gpu in there.gpus] == ["AD102"]
    assert [out.reason for out in there.left_out] == [reason]


def test_gpus_of_a_head_are_left_alone() -> None:
    plan = plan_of([gpu_worker(), replace(head(), gpus=gpus(ADA, driver="nvidia"))])
    assert plan.hosts["head"].compute.backend == "cpu"
    assert plan.machines["head"].driver is None
    assert [out.reason for out in plan.machines["head"].left_out] == ["this host is no worker"]


def test_a_gpu_that_the_catalog_does_not_know_is_warned_about() -> None:
    (warning,) = planned(gpu_worker(UNKNOWN)).warnings
    assert warning == (
        "w1: 0000:09:00.0 NVIDIA Corporation Device [10de:ffff] is not in the catalog, so it is left out:"
        " add it to roles/gpus/catalog.yaml if it can compute."
    )


def test_a_gpu_that_is_too_old_and_alone_is_refused() -> None:
    assert refusals_of(gpu_worker(KEPLER)) == [
        "w1: 0000:06:00.0 NVIDIA Corporation GK104 [GeForce GTX 680] is too old: no CUDA toolkit of the catalog compiles for"
        ' kepler (compute capability 3.0): set `backend = "cpu"` to let the processors compute, or take the card out.'
    ]
    assert refusals_of(gpu_worker(KEPLER, backend="cpu")) == []


def test_a_backend_that_no_gpu_can_do_is_refused() -> None:
    (refusal,) = refusals_of(gpu_worker(PASCAL, backend="sycl"))
    assert refusal.startswith(
        "w1: backend = 'sycl' has nothing to compute with here (it has 0000:01:00.0 NVIDIA Corporation GP102"
    )
    assert refusal.endswith("correct `backend`, or leave it out and let the GPUs decide.")
    assert "it has no GPU of its own" in refusals_of(gpu_worker(backend="cuda"))[0]
    assert "GK104 [GeForce GTX 680])" in refusals_of(gpu_worker(KEPLER, backend="vulkan"))[0]


# What a worker is to lend.


@pytest.mark.parametrize(
    ("texts", "settings", "names"),
    [
        ([PASCAL], {}, ["CUDA0"]),
        ([PASCAL, ADA, ARC, INTEGRATED], {}, ["CUDA0", "CUDA1"]),
        ([PASCAL, ADA], {"passthrough": ["03:00.0"]}, ["CUDA0"]),
        ([PASCAL], {"gpus": ["GP102", "AD102"]}, ["CUDA0"]),
        ([], {"gpus": ["GP102"]}, []),
        # CUDA may see these, too.
        ([PASCAL, KEPLER], {}, []),
        ([PASCAL, UNKNOWN], {}, []),
        ([PASCAL], {"backend": "vulkan"}, []),
        ([PASCAL], {"backend": "cpu"}, []),
        ([NAVI], {}, []),
        ([], {}, []),
    ],
)
def test_gpus_have_names_where_cuda_sees_no_others(texts: list[str], settings: dict[str, Any], names: list[str]) -> None:
    assert list(planned(gpu_worker(*texts, system="ubuntu24.04", **settings)).hosts["w1"].names) == names


def test_a_gpu_that_vfio_pci_holds_is_none_that_cuda_sees() -> None:
    there = replace(gpu_worker(), gpus=(*gpus(ADA, driver="nvidia"), *gpus(PASCAL, driver="vfio-pci")))
    assert planned(there).hosts["w1"].names == ("CUDA0",)


@pytest.mark.parametrize(
    ("texts", "settings", "count"),
    [
        ([PASCAL, ADA], {}, 2),
        # Who only declares a card has none to lend.
        ([PASCAL], {"gpus": ["GP102", "AD102"]}, 1),
        ([], {"gpus": ["GP102"]}, 0),
        ([ARC, PASCAL], {"backend": "vulkan"}, 2),
        ([PASCAL], {"backend": "cpu"}, 0),
        ([], {"backend": "vulkan", "vulkan_software": True}, 0),
    ],
)
def test_of_the_gpus_those_count_that_are_there(texts: list[str], settings: dict[str, Any], count: int) -> None:
    assert planned(gpu_worker(*texts, system="ubuntu24.04", **settings)).hosts["w1"].gpus == count


@pytest.mark.parametrize("texts", [[], [ADA]])
def test_nothing_computes_on_a_hypervisor_whatever_is_set_for_all(texts: list[str]) -> None:
    box = host("box", ["hypervisors"], machine("192.0.2.9"), backend="cuda")
    plan = plan_of([gpu_worker(PASCAL, backend="cuda"), head(), replace(box, gpus=gpus(*texts))])
    there = plan.machines["box"]
    assert (plan.refusals, there.gpus, there.driver, there.choices) == ((), (), None, ())


# Virtual machines and what is declared.


def test_a_gpu_on_vfio_pci_is_not_the_hosts() -> None:
    there = replace(gpu_worker(ADA), gpus=(*gpus(ADA, driver="nvidia"), *gpus(PASCAL, driver="vfio-pci")))
    plan = planned(there)
    assert [gpu.chip for gpu in plan.machines["w1"].gpus] == ["AD102"]
    assert [out.reason for out in plan.machines["w1"].left_out] == ["passed through to a virtual machine (bound to vfio-pci)"]
    assert plan.warnings == planned(gpu_worker(ADA, driver_of_gpus="nvidia")).warnings


@pytest.mark.parametrize(
    ("holder", "reboot"), [(None, ""), ("nouveau", "nouveau holds 0000:01:00.0, which is to be bound to vfio-pci")]
)
def test_a_gpu_that_is_to_be_passed_through_is_left_out_and_bound(holder: str | None, reboot: str) -> None:
    there = planned(gpu_worker(PASCAL, driver_of_gpus=holder, passthrough=["01:00.0"])).machines["w1"]
    assert there.gpus == ()
    assert there.steps == ("bind 0000:01:00.0 to vfio-pci",)
    assert there.reboot == reboot


def test_an_address_without_a_gpu_is_warned_about() -> None:
    assert planned(gpu_worker(PASCAL, passthrough=["0e:00.0"])).warnings[0] == (
        "w1: passthrough names 0000:0e:00.0, and no GPU is seen there: correct it, or look for the card."
    )


def test_a_declared_gpu_is_planned_for_before_it_is_seen() -> None:
    plan = planned(gpu_worker(system="debian12", gpus=["GP102"]))
    assert plan.hosts["w1"].compute.architectures == ("61-real",)
    assert plan.warnings == (
        "w1: GP102 is declared in `gpus` and is not seen: pass it through to this host, or take it out of `gpus`.",
    )


@pytest.mark.parametrize("text", [PASCAL, "10de:1b06", "GP102"])
def test_a_declared_gpu_that_is_seen_needs_no_word(text: str) -> None:
    plan = planned(gpu_worker(PASCAL, system="debian12", gpus=[text]))
    assert plan.warnings == ()
    assert len(plan.machines["w1"].gpus) == 1


def test_a_gpu_of_which_only_the_id_is_seen_answers_its_declaration_by_chip() -> None:
    bare = Gpu("0000:01:00.0", "nvidia", "", "10de:1b06", None, "pascal", "6.1")
    plan = planned(replace(gpu_worker(system="debian12", gpus=["GP102"]), gpus=(bare,)))
    assert plan.warnings == ()


def test_each_declaration_stands_for_one_gpu() -> None:
    plan = planned(gpu_worker(PASCAL, system="debian12", gpus=["GP102", "GP102"]))
    assert len(plan.machines["w1"].gpus) == 2
    assert len(plan.warnings) == 1


def test_what_is_seen_and_not_declared_is_planned_and_warned_about() -> None:
    plan = planned(gpu_worker(PASCAL, ADA, INTEGRATED, system="debian12", gpus=["10de:1b06"]))
    assert len(plan.machines["w1"].gpus) == 2
    assert plan.warnings[0] == (
        "w1: 0000:03:00.0 NVIDIA Corporation AD102 [GeForce RTX 4090] is seen and is not declared in `gpus`:"
        " add it there, or leave `gpus` out."
    )


@pytest.mark.parametrize("away", [{"driver_of_gpus": "vfio-pci"}, {"passthrough": ["01:00.0"]}])
def test_a_hypervisor_among_the_workers_is_warned_about(away: dict[str, Any]) -> None:
    (warning,) = planned(gpu_worker(PASCAL, **away)).warnings
    assert warning == (
        "w1: 0000:01:00.0 NVIDIA Corporation GP102 [GeForce GTX 1080 Ti] belongs to virtual machines, so the processors compute"
        ' here: take the host out of `workers` if only its virtual machines are to work, or set `backend = "cpu"`.'
    )
    assert planned(gpu_worker(PASCAL, backend="cpu", **away)).warnings == ()


@pytest.mark.parametrize("away", [{"driver_of_gpus": "vfio-pci"}, {"passthrough": ["01:00.0"]}])
def test_a_gpu_that_is_passed_through_and_wanted_is_refused(away: dict[str, Any]) -> None:
    assert refusals_of(gpu_worker(PASCAL, gpus=["10de:1b06"], **away)) == [
        "w1: 0000:01:00.0 NVIDIA Corporation GP102 [GeForce GTX 1080 Ti] is declared in `gpus` and belongs to a virtual machine"
        " (vfio-pci or `passthrough`): take it out of `gpus` of this host, or give it back to the host."
    ]


def test_one_of_two_equal_cards_may_be_passed_through() -> None:
    twins = (*gpus(PASCAL, driver="vfio-pci"), *gpus(PASCAL.replace("01:00", "02:00"), driver="nvidia"))
    assert refusals_of(replace(gpu_worker(gpus=["10de:1b06"]), gpus=twins)) == []


# Links.


def linked(verdict: Verdict, driver: str | None = None) -> tuple[Gpu, ...]:
    (gpu,) = gpus(PASCAL, driver=driver)
    return (replace(gpu, link=Link(verdict, "so it was measured")),)


@pytest.mark.parametrize("verdict", list(Verdict))
def test_narrow_and_slow_links_are_warned_about_and_no_others(verdict: Verdict) -> None:
    plan = planned(replace(gpu_worker(system="debian12"), gpus=linked(verdict)))
    expected = {
        f"w1: the link of 0000:01:00.0 NVIDIA Corporation GP102 [GeForce GTX 1080 Ti] is {verdict}: so it was measured."
        for verdict in {verdict} & {Verdict.NARROW, Verdict.SLOW}
    }
    assert set(plan.warnings) == expected
    assert bool(plan.refusals) == (verdict is Verdict.UNREACHABLE)


def test_nothing_is_installed_over_an_unreachable_gpu() -> None:
    plan = planned(replace(gpu_worker(system="debian12"), gpus=linked(Verdict.UNREACHABLE)))
    (refusal,) = plan.refusals
    assert refusal == (
        "w1: 0000:01:00.0 NVIDIA Corporation GP102 [GeForce GTX 1080 Ti] is unreachable (so it was measured): no driver can help;"
        " switch the machine off and on again, its hypervisor too if it is a virtual one, and look at slot and power,"
        " or take the card out."
    )
    assert plan.machines["w1"].steps == ()


def test_the_narrow_link_of_a_card_that_is_passed_through_is_warned_about() -> None:
    box = host("box", ["hypervisors"], machine("192.0.2.9"))
    plan = plan_of([gpu_worker(), head(), replace(box, gpus=linked(Verdict.NARROW, "vfio-pci"))])
    assert [warning.partition(":")[0] for warning in plan.warnings] == ["box"]
    assert list(plan.hosts) == ["w1", "head"]
    assert [out.reason for out in plan.machines["box"].left_out] == ["passed through to a virtual machine (bound to vfio-pci)"]


def test_an_unreachable_card_of_a_virtual_machine_stops_nobody_else() -> None:
    box = host("box", ["hypervisors"], machine("192.0.2.9"))
    plan = plan_of([gpu_worker(), head(), replace(box, gpus=linked(Verdict.UNREACHABLE, "vfio-pci"))])
    assert plan.refusals == ()
    assert "is unreachable" in plan.warnings[0]


def test_a_gpu_has_a_name_whatever_is_known_of_it() -> None:
    assert title(declared("10de:1b06", load())) == "pascal GPU [10de:1b06]"
    assert title(declared("GP102", load())) == "GP102"
    assert title(Gpu("0000:01:00.0", "nvidia", "", "10de:1b06", None, "pascal")) == "0000:01:00.0 pascal GPU [10de:1b06]"
    assert title(gpus(BLACKWELL)[0]) == "0000:05:00.0 NVIDIA Corporation GB206 [GeForce RTX 5060 Ti]"
