"""Faults in combinations, sizes, memory and states are caught; kernels that are right by unusual methods are upheld."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from itertools import islice
from typing import Any
from weakref import ref

import pytest

import attention_conformance.claims.trials as calls_of_kernels
from attention_conformance.calls.answer import OnKernel
from attention_conformance.calls.attention_call import State
from attention_conformance.calls.sizes_and_numbers import Numbers, Sizes, tensors
from attention_conformance.claims.call_claims import examine
from attention_conformance.claims.capabilities import CAPABILITIES
from attention_conformance.claims.capability_view import View
from attention_conformance.claims.trials import PAIRS, Trials, trials_of
from attention_conformance.interfaces import INTERFACES
from attention_conformance.kernel import kernel_loader
from attention_conformance.kernel.kernel import Kernel
from attention_conformance.kernel.kernel_loader import kernel_of
from tests.attention_conformance.claims.combined_faults import RIGHT
from tests.attention_conformance.claims.failing_calls import FILE, IN_HALF, PLANTED, falsified_by, trials_on
from tests.attention_conformance.claims.model_faults import first_answer_again_after
from tests.attention_conformance.claims.unusual_kernels import UNUSUAL
from theorems.core.claim import Verdict
from theorems.core.kernel_use import KernelUse
from theorems.run.registry.suite import capabilities

FAILING: dict[str, dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8"))
OFTEN = ("causality_dropped_with_a_mask-float64", "head_of_96-float64", "keys_remembered_by_their_pointer-float64")
"""Faults of options, of sizes and of states, for which ``make test`` makes all calls, not only the failing one."""
DTYPES = ("float64", "float32", "bfloat16", "float16")
RIGHT_IN_ANOTHER_WAY = [(name, dtype) for name in UNUSUAL for dtype in DTYPES]
PARTS = 8
"""``make test`` makes every eighth call on a right kernel, beginning with another call for the next kernel."""


@cache
def right_kernel(interface: str, dtype: str) -> OnKernel:
    """Return the right kernel of an interface; the plain interface gets PyTorch's."""
    return kernel_of(RIGHT["flash" if interface == "flash" else "sdpa"], dtype).as_implementation()


def test_each_planted_fault_has_a_recorded_failing_call() -> None:
    assert FAILING.keys() == PLANTED.keys()


@pytest.mark.parametrize("name", PLANTED)
def test_each_fault_is_caught_at_its_recorded_call_at_which_a_right_kernel_is_upheld(name: str) -> None:
    kernel, dtype = PLANTED[name]
    trials, number = trials_on(kernel, dtype), FAILING[name]["number"]
    assert number in trials.cover()
    trial = trials.at(number)
    assert {*FAILING[name]["falsified"]} <= falsified_by(trial)
    claims = list(examine(trial.call, right_kernel(trials.under_test.kernel.interface.name, dtype)))
    assert Verdict.FALSIFIED not in {claim.verdict for _, claim in claims}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in OFTEN else [pytest.mark.nightly]) for name in PLANTED]
)
def test_a_fault_is_caught_among_the_calls_of_the_minute_profile(name: str) -> None:
    trials = trials_on(*PLANTED[name])
    assert any(falsified_by(trials.at(number)) for number in trials.cover())


@pytest.mark.parametrize("number", [2, 7, 12, 50, 101, 150, 199])
def test_a_kernel_that_repeats_its_first_answer_is_caught_whenever_it_begins(number: int) -> None:
    replayed = tensors(Sizes(B=1, H=2, G=2, L=3, T=3, E=4, M=4), Numbers.NORMAL, 0).replace(state=State.REPLAYED)
    kernel = Kernel(first_answer_again_after(number), "", interface=INTERFACES["sdpa"], differentiable=False)
    claims = [claim for _, claim in examine(replayed, kernel.as_implementation())]
    assert [claim.name for claim in claims if claim.verdict is Verdict.FALSIFIED] == ["output-is-attention"]


@pytest.mark.parametrize("name", IN_HALF)
def test_a_fault_of_half_precision_does_not_show_in_float32(name: str) -> None:
    kernel, _ = PLANTED[f"{name}-bfloat16"]
    trials = trials_on(kernel, "float32")
    assert not falsified_on(trials, trials.cover()[::PARTS])


def falsified_on(trials: Trials, numbers: Sequence[int]) -> list[Any]:
    """Return the calls that falsify claims, each with the names of these claims."""
    calls = [trials.at(number) for number in numbers]
    assert not [trial.broke for trial in calls if trial.broke is not None]
    return [(trial.call, falsified_by(trial)) for trial in calls if falsified_by(trial)]


@pytest.mark.parametrize(("name", "dtype"), RIGHT_IN_ANOTHER_WAY)
def test_a_right_kernel_of_an_unusual_method_is_upheld(name: str, dtype: str) -> None:
    trials = trials_on(UNUSUAL[name], dtype)
    assert not falsified_on(trials, trials.cover()[RIGHT_IN_ANOTHER_WAY.index((name, dtype)) % PARTS :: PARTS])


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "dtype"), RIGHT_IN_ANOTHER_WAY)
def test_a_right_kernel_is_upheld_on_every_call_of_the_minute_profile(name: str, dtype: str) -> None:
    trials = trials_on(UNUSUAL[name], dtype)
    assert not falsified_on(trials, trials.cover())


def test_the_covering_array_is_not_computed_for_the_fixed_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*arguments: Any) -> int:
        raise AssertionError("the array was computed")

    trials = trials_on(UNUSUAL[next(iter(UNUSUAL))], "float64")
    monkeypatch.setattr(calls_of_kernels, "size_of_array", fails)
    numbers = trials.about(CAPABILITIES[0], PAIRS)
    assert all(number < 0 for number, _ in islice(numbers, 20))
    with pytest.raises(AssertionError, match="the array was computed"):
        list(numbers)


def test_a_kernel_is_compiled_only_when_its_fixed_calls_are_done(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[Kernel] = []

    def compile_it(kernel: Kernel, *call: Any, **options: Any) -> Kernel:
        compiled.append(kernel)
        return kernel

    monkeypatch.setattr(kernel_loader, "with_compiler", compile_it)
    kernel = kernel_of(UNUSUAL[next(iter(UNUSUAL))], "float64", compiles_later=True)
    trials = Trials(kernel.as_implementation(), seed=0, strength=2)
    assert len([*islice(trials.about(CAPABILITIES[0], PAIRS), 20)]) == 20
    assert not kernel.lacks(KernelUse(True, "", capability="output"))
    assert not compiled
    assert trials.cover().start < -20
    assert kernel.lacks(KernelUse(True, "", capability="compiled"))
    assert len(compiled) == 1


def test_a_capability_stopped_by_fail_fast_makes_no_call() -> None:
    trials = trials_on(UNUSUAL[next(iter(UNUSUAL))], "float64")
    latest = trials.at(trials.cover().start)
    trials.blamed = ["kernel-causal"]
    [(outcome, call)] = View(capabilities()["kernel-output"], trials).outcomes(PAIRS)
    assert (outcome.verdict, call) == (Verdict.INCONCLUSIVE, latest.call)
    assert outcome.reason == "stopped by --fail-fast: a call fails, see kernel-causal"
    assert trials.latest is latest


def test_trials_are_cached_for_the_last_kernel_only() -> None:
    one, second = (kernel_of(UNUSUAL[name], "float64").as_implementation() for name in list(UNUSUAL)[:2])
    first = next(trials_of(one, 2, 0).about(CAPABILITIES[0], 2))[1]
    assert next(trials_of(one, 2, 0).about(CAPABILITIES[0], 2))[1] is first
    trial = ref(first)
    del first
    trials_of(second, 2, 0)
    assert trial() is None
