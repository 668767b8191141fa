"""Faults in combinations, sizes, memory and states are caught; kernels that are right in another way are not."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from weakref import ref

import pytest

from attention_conformance.claims.capabilities import CAPABILITIES
from attention_conformance.claims.examination import About
from attention_conformance.claims.trials import PAIRS, trials_of
from attention_conformance.kernel.loading import kernel_of
from tests.attention_conformance.claims.held_out_faults import FAULTS, IN_BFLOAT16
from tests.attention_conformance.claims.model_faults import IN_HALF_ALONE, MODEL_FAULTS
from tests.attention_conformance.claims.unusual_kernels import UNUSUAL
from theorems.core.claim import Verdict

IN_HALF = ("sums_in_half", "products_in_half")


def claims_of(kernel: object, dtype: str) -> Iterator[About]:
    """Call after call, as the minute profile has them."""
    under_test = kernel_of(kernel, dtype).as_implementation()  # type: ignore[arg-type]
    for _, trial in trials_of(under_test, PAIRS, 0).about(CAPABILITIES[0], PAIRS):
        assert trial.broke is None
        yield from trial.claims


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *((name, "float64") for name in FAULTS if name not in IN_HALF + IN_BFLOAT16),
        *((name, dtype) for name in IN_HALF for dtype in ("bfloat16", "float16")),
        *((name, "bfloat16") for name in IN_BFLOAT16),
    ],
)
def test_a_fault_is_caught_among_the_calls_of_the_minute(name: str, dtype: str) -> None:
    assert any(claim.verdict is Verdict.FALSIFIED for _, claim in claims_of(FAULTS[name], dtype))


@pytest.mark.parametrize("name", MODEL_FAULTS)
def test_a_fault_in_a_call_of_a_model_is_caught(name: str) -> None:
    claims = claims_of(MODEL_FAULTS[name], IN_HALF_ALONE.get(name, "float64"))
    assert any(claim.verdict is Verdict.FALSIFIED for _, claim in claims)


@pytest.mark.parametrize("name", IN_HALF)
def test_which_is_none_where_half_precision_is_not_used(name: str) -> None:
    found = (claim for _, claim in chain.from_iterable([claims_of(FAULTS[name], "float32")]))
    assert {claim.verdict for claim in found} == {Verdict.UPHELD}


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16"])
@pytest.mark.parametrize("name", UNUSUAL)
def test_a_right_kernel_is_upheld_however_it_goes_about_it(name: str, dtype: str) -> None:
    for about, claim in claims_of(UNUSUAL[name], dtype):
        assert claim.verdict is not Verdict.FALSIFIED, (about, claim)


def test_what_came_of_calls_is_held_of_one_kernel_alone() -> None:
    one, other = (kernel_of(UNUSUAL[name], "float64").as_implementation() for name in list(UNUSUAL)[:2])
    first = next(trials_of(one, 2, 0).about(CAPABILITIES[0], 2))[1]
    assert next(trials_of(one, 2, 0).about(CAPABILITIES[0], 2))[1] is first
    trial = ref(first)
    del first
    trials_of(other, 2, 0)
    assert trial() is None
