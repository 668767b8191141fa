"""The report names the smallest combinations of options that fail, and only the capabilities in these are falsified."""

from __future__ import annotations

import io
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from torch.nn.functional import scaled_dot_product_attention

from attention_conformance.calls.attention_call import AttentionCall
from attention_conformance.calls.sizes_and_numbers import Numbers, Sizes, tensors
from attention_conformance.claims.call_shrinker import smallest_failing
from attention_conformance.kernel.check import verify_kernel
from attention_conformance.kernel.results_table import failing_combinations, in_words
from generators.user_data import as_text
from tests.attention_conformance.kernel.signatures import sdpa, without_mask
from theorems.core.claim import Verdict
from theorems.run.registry.suite import capabilities
from theorems.run.result import Failure, Result
from theorems.run.tables import print_failures


def call(H: int = 1, L: int = 4, T: int = 4, **further: Any) -> AttentionCall:
    return tensors(Sizes(B=1, H=H, G=1, L=L, T=T, E=2, M=2), Numbers.NORMAL, seed=0).replace(**further)


def falsified(id: str, failing: AttentionCall) -> Result:
    failure = Failure(Verdict.FALSIFIED, "off", as_text(failing, case_of=id, claim="off"), shrunk=True)
    return Result(id, "a capability", counts={Verdict.FALSIFIED: 1}, failure=failure)


MASK = np.ones((1, 1, 4, 4), dtype=bool)


def test_a_combination_that_contains_a_failing_one_is_not_reported() -> None:
    two, three = call(causal=True, visible=MASK), call(causal=True, visible=MASK, scale=0.5)
    other = call(scale=0.5)
    results = [falsified("kernel-causal", two), falsified("kernel-scale", three)]
    assert failing_combinations(results) == [["causal", "boolean-mask"]]
    assert failing_combinations([*results, falsified("kernel-scale", other)]) == [["causal", "boolean-mask"], ["scale"]]


def test_failing_calls_without_options_are_reported_beside_others() -> None:
    result = failing_combinations([falsified("kernel-output", call()), falsified("kernel-causal", call(causal=True))])
    assert result == [[], ["causal"]]
    assert in_words(result) == "smallest failing combinations: calls without any option; causal"
    assert in_words([]) == ""
    assert failing_combinations([Result("kernel-output", "")]) == []


def test_a_call_that_falsifies_several_capabilities_is_printed_once() -> None:
    both = call(causal=True, visible=MASK)
    stream = io.StringIO()
    results = [
        falsified("kernel-causal", both),
        falsified("kernel-boolean-mask", both),
        falsified("kernel-scale", call()),
    ]
    print_failures(Console(file=stream, width=200), results, lambda one: f"again {one.id}")
    assert stream.getvalue().count("causal True") == 1
    assert stream.getvalue().count("on the same case as kernel-causal") == 1
    assert stream.getvalue().count("again kernel-") == 3


@pytest.mark.parametrize("head", range(5))
def test_a_call_is_shrunk_to_the_only_head_that_fails(head: int) -> None:
    """Only the head whose first query has the number 77 fails, and the shrunk call contains only this head."""
    whole = call(H=5)
    query = whole.query.copy()
    query[0, head, 0, 0] = 77.0
    small = smallest_failing(whole.replace(query=query), lambda one: bool((one.query == 77.0).any()))
    assert small.sizes["H"] == 1
    assert (small.query == 77.0).any()


@pytest.mark.parametrize("row", range(4))
@pytest.mark.parametrize("key", [0, 3])
def test_a_mask_is_reduced_to_the_entries_that_matter(row: int, key: int) -> None:
    hides = np.random.default_rng(0).random((4, 4)) < 0.5
    hides[row, key] = True
    bias = np.where(hides, -np.inf, 1.5)

    def fails(one: AttentionCall) -> bool:
        same = one.sizes["L"] == 4 and one.sizes["T"] == 4 and one.bias is not None
        return same and bool(np.isneginf(one.bias[row, key]))

    small = smallest_failing(call(bias=bias), fails)
    assert small.bias is not None
    assert (small.bias != 0).sum() == 1


def without_causality_under_a_mask(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    causal = is_causal and attn_mask is None
    return scaled_dot_product_attention(
        query, key, value, attn_mask, dropout_p, causal, scale=scale, enable_gqa=enable_gqa
    )


@cache
def results() -> dict[str, Result]:
    ids = tuple(capabilities())
    result = verify_kernel(without_causality_under_a_mask, statements=ids, examples=25, dtype="float64")
    return {item.id.removeprefix("kernel-"): item for item in result}


def test_an_ignored_mask_falsifies_masks_but_not_repeated_calls() -> None:
    ids = ("kernel-boolean-mask", "kernel-additive-mask", "kernel-repeated-calls")
    masks_and_states = verify_kernel(sdpa(without_mask), statements=ids, examples=25, dtype="float64")
    assert [item.verdict for item in masks_and_states] == [Verdict.FALSIFIED, Verdict.FALSIFIED, Verdict.INCONCLUSIVE]


def test_an_option_whose_calls_mostly_fail_without_it_is_inconclusive() -> None:
    def rounded(
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        is_causal: bool = False,
        scale: float | None = None,
    ) -> torch.Tensor:
        return scaled_dot_product_attention(query.float().double(), key, value, is_causal=is_causal, scale=scale)

    (result,) = verify_kernel(rounded, statements=["kernel-causal"], examples=25, dtype="float64")
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "calls also fail without this option: see kernel-output" in result.reason


def test_a_fault_that_needs_two_options_is_reported_for_their_combination() -> None:
    combinations = failing_combinations(results().values())
    assert combinations == [["causal", "boolean-mask"], ["causal-rectangle", "additive-mask"]]
    for combination in combinations:
        assert {"causal", "causal-rectangle"} & set(combination)
        assert {"boolean-mask", "additive-mask"} & set(combination)


def test_a_fault_of_one_capability_does_not_falsify_another() -> None:
    for name in ("grouped-heads", "empty-rows", "hidden-keys", "bias-gradient", "scale", "memory", "output"):
        assert results()[name].verdict is Verdict.UPHELD, name
    for name in ("causal", "boolean-mask", "additive-mask"):
        failure = results()[name].failure
        assert results()[name].verdict is Verdict.FALSIFIED
        assert failure is not None
        assert " and " in failure.line
        assert "meet, as far as the search shows" in failure.line
