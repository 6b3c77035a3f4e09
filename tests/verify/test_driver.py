"""NVIDIA's driver is what the plan says: loaded where a card is, installed where one is still to come, and of no other branch."""

from __future__ import annotations

from tests.verify.cluster import Subject


def test_driver_drives_every_planned_card(driven: Subject) -> None:
    seen, cards = driven.driver(), [gpu for gpu in driven.nvidia if gpu.address]
    if not cards:
        assert not seen.loaded, (
            f"{driven}: NVIDIA driver {seen.loaded} is loaded, and no card is seen there; look at `lspci` there."
        )
        return
    assert seen.loaded, f"{driven}: NVIDIA's driver is not loaded; {state_of(driven)}"
    assert seen.loaded == seen.library, (
        f"{driven}: NVIDIA's module {seen.loaded} is loaded and libcuda is {seen.library or 'not there'}; {state_of(driven)}"
    )
    assert len(seen.gpus) >= len(cards), (
        f"{driven}: nvidia-smi lists {len(seen.gpus)} GPUs, and {len(cards)} are planned; {state_of(driven)}"
    )


def test_driver_is_installed_for_the_next_boot(driven: Subject) -> None:
    seen = driven.driver()
    assert seen.library, f"{driven}: NVIDIA's driver is not installed; {state_of(driven)}"
    # A container has no kernel that could load a module.
    assert not seen.kernel or seen.built_for(seen.kernel), (
        f"{driven}: the kernel that boots next, {seen.kernel}, has no module of NVIDIA driver {seen.library}; {state_of(driven)}"
    )


def test_no_module_of_another_branch_is_there(driven: Subject) -> None:
    planned = driven.machine.driver
    assert planned
    strange = sorted(
        f"{version} for {kernel}" for kernel, version in driven.driver().modules if not is_of(version, planned.branch)
    )
    assert planned.source == "unmanaged" or not strange, (
        f"{driven}: there are modules of NVIDIA driver {', '.join(strange)}, and branch {planned.branch} is planned; remove what"
        " brought them, and run deploys/prepare.py."
    )


def test_nouveau_is_not_loaded(driven: Subject) -> None:
    assert not driven.driver().nouveau, f"{driven}: nouveau is loaded, beside NVIDIA's driver; {state_of(driven)}"


def test_branch_is_pinned(driven: Subject) -> None:
    planned = driven.machine.driver
    assert planned
    assert planned.source == "unmanaged" or str(planned.branch) in driven.driver().pins, (
        f"{driven}: nothing pins NVIDIA's driver to branch {planned.branch} (/etc/apt/preferences.d/*gpuquilt-nvidia), so that an"
        " upgrade may leave it; run deploys/prepare.py."
    )


def is_of(version: str, branch: int) -> bool:
    return version.partition(".")[0] == str(branch)


def state_of(driven: Subject) -> str:
    """What the plan knows of it."""
    found = driven.machine.driver_state
    assert found
    return found.sentence
