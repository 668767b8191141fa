"""The diagnosis of a failing call, on small calls written by hand: the wrong numbers, and a guess at the cause."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from attention_conformance.calls.attention_call import AttentionCall
from attention_conformance.calls.sizes_and_numbers import Numbers, Sizes, tensors
from attention_conformance.claims.agreement import GRADIENTS
from attention_conformance.claims.call_shrinker import smallest_failing
from attention_conformance.claims.capabilities import capability_of
from attention_conformance.kernel.causes import UNEXPLAINED, _is_of_base_two, cause_of
from attention_conformance.kernel.check import verify_kernel
from attention_conformance.kernel.diagnosis import _where, trace_failure
from attention_conformance.kernel.kernel_loader import kernel_named, kernel_of
from attention_conformance.kernel.trace import QUANTITIES, Entry, Trace
from tests.attention_conformance.claims import planted_kernels
from theorems.core.claim import Verdict
from theorems.run.result import Result

PLANTED = planted_kernels.__name__


def call(T: int = 5, **further: Any) -> AttentionCall:
    return tensors(Sizes(B=1, H=2, G=2, L=3, T=T, E=4, M=4), Numbers.NORMAL, seed=0).replace(**further)


def entry(claim: str, theirs: Any, due: Any, given: AttentionCall) -> Entry:
    return Entry(claim, given, QUANTITIES[claim], np.array(theirs), np.array(due), np.full(np.shape(due), 1e-9))


def trace_of(*entries: Entry, falsified: tuple[str, ...] = (), given: AttentionCall | None = None) -> Trace:
    names = falsified or tuple(entry.claim for entry in entries)
    return Trace("output", None, given or call(), None, names, entries)


def test_if_no_number_is_wrong_the_first_falsified_claim_is_named() -> None:
    two = trace_of(falsified=("same-bits", "inputs-are-unchanged"))
    assert _where(two) == "the same call twice gives other bits"
    assert _where(trace_of(falsified=("unheard-of", "same-bits"))) == "unheard-of does not hold"


def test_other_wrong_gradients_are_listed() -> None:
    one = entry(GRADIENTS[0], np.full((1, 1, 1, 2), 3.0), np.full((1, 1, 1, 2), 1.0), call())
    other = entry(GRADIENTS[1], np.zeros((1, 1, 1, 2)), np.ones((1, 1, 1, 2)), call())
    assert (
        _where(trace_of(one))
        == "dQ at (b, h, l, e) = (0, 0, 0, 0) is 3 where 1 is due, 2e+09 times what rounding allows"
    )
    assert _where(trace_of(one, other)) == _where(trace_of(one)) + "; dK likewise"


def cause(kernel: Any, failing: AttentionCall, capability: str = "output") -> str:
    """Return the diagnosed cause of a kernel's failure on a call."""
    under_test: Any = kernel_of(kernel, "float64").as_implementation()
    trace = trace_failure(capability_of(f"kernel-{capability}"), failing, under_test)
    assert trace is not None
    return cause_of(trace, under_test)


def wrong_where(condition: Any) -> Any:
    """Return PyTorch's attention, too large by 1 % where the condition on its arguments holds."""

    def kernel(
        query: Any, key: Any, value: Any, attn_mask: Any = None, is_causal: bool = False, scale: Any = None
    ) -> Any:
        output = torch.nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask, is_causal=is_causal, scale=scale
        )
        return output * (1.01 if condition(query, key, attn_mask, is_causal, scale) else 1.0)

    return kernel


@pytest.mark.parametrize("T", [7, 8, 9, 15, 17, 127])
def test_a_length_next_to_a_block_size_is_named_if_one_key_less_passes(T: int) -> None:
    says = cause(wrong_where(lambda q, k, *rest: k.shape[2] >= T), call(T))
    assert says.endswith(f": no smaller failing call than one with keys T = {T} was found")
    assert cause(wrong_where(lambda q, k, *rest: k.shape[2] >= T - 1), call(T)) == UNEXPLAINED


@pytest.mark.parametrize("T", [5, 6, 10, 14, 18])
def test_a_failure_at_a_length_far_from_every_block_size_gets_no_guess(T: int) -> None:
    assert cause(wrong_where(lambda q, k, *rest: k.shape[2] >= T), call(T)) == ""


def test_an_option_is_named_only_if_the_call_passes_without_it() -> None:
    masked = call(visible=np.ones((1, 1, 1, 5), dtype=bool))
    both = masked.replace(scale=0.5)
    by_mask = wrong_where(lambda q, k, mask, causal, scale: mask is not None)
    by_both = wrong_where(lambda q, k, mask, causal, scale: mask is not None and scale == 0.5)
    by_either = wrong_where(lambda q, k, mask, causal, scale: mask is not None or scale == 0.5)
    assert cause(by_mask, masked, "boolean-mask") == "perhaps the mask hides wrong keys"
    assert cause(by_mask, both, "boolean-mask") == "perhaps the mask hides wrong keys"
    assert cause(by_both, both, "boolean-mask") == "only where scale and boolean-mask meet, as far as the search shows"
    assert cause(by_either, both, "boolean-mask") == UNEXPLAINED
    by_scale = wrong_where(lambda q, k, mask, causal, scale: scale == 0.5)
    assert cause(by_scale, both, "scale") == "without scale the kernel is right"


def test_large_logits_are_named_if_small_ones_pass() -> None:
    def without_maximum(query: Any, key: Any, value: Any, scale: float = 1.0) -> Any:
        weights = torch.exp(query @ key.mT * scale)
        return weights / weights.sum(dim=-1, keepdim=True) @ value

    large = call(query=call().query * 4096.0)
    assert cause(without_maximum, large).startswith("perhaps an exponential overflows")


@pytest.mark.parametrize(("factor", "base"), [(1 / math.log(2), True), (2.0, False), (1.0, False)])
def test_a_logarithm_to_the_base_two_is_recognised(factor: float, base: bool) -> None:
    due = np.array([[[1.5, -2.0, 1e-5]]])
    assert _is_of_base_two(trace_of(entry("log-sum-exp", due * factor, due, call()))) is base


def test_a_right_log_sum_exp_does_not_suggest_another_base() -> None:
    due = np.full((1, 1, 2), 1e-5)
    assert not _is_of_base_two(trace_of(entry("log-sum-exp", due, due, call())))


LONG, WIDE = Sizes(B=1, H=2, G=1, L=3, T=2049, E=16, M=16), Sizes(B=5, H=4, G=2, L=40, T=40, E=136, M=136)


@pytest.mark.parametrize(
    ("of", "fails", "smallest"),
    [
        (LONG, lambda of: of["T"] % 64 == 1 and of["T"] > 64, {"T": 65}),
        (LONG, lambda of: of["T"] > 50, {"T": 51}),
        (WIDE, lambda of: of["E"] % 8 == 0 and of["E"] > 64, {"E": 72}),
        (WIDE, lambda of: of["E"] == of["M"] > 64, {"E": 65, "M": 65}),
        (WIDE, lambda of: of["L"] == of["T"] >= 33, {"L": 33, "T": 33}),
        (WIDE, lambda of: of["B"] > 2 and of["H"] > 1, {"B": 3, "H": 2}),
    ],
)
def test_each_size_is_reduced_to_the_smallest_that_fails(of: Sizes, fails: Any, smallest: dict[str, int]) -> None:
    large = tensors(of, Numbers.NORMAL, seed=0)
    small = smallest_failing(large, lambda given: fails(given.sizes)).sizes
    assert {axis: size for axis, size in small.items() if axis != "G"} == dict.fromkeys("BHLTEM", 1) | smallest


def falsified(source: str, capability: str, dtype: str = "float64", examples: int = 20) -> Result:
    """Return the result of testing a capability of a wrong kernel, which must be falsified."""
    kernel = kernel_named(source, dtype)
    (result,) = verify_kernel(kernel, statements=[f"kernel-{capability}"], examples=examples)
    assert result.verdict is Verdict.FALSIFIED, result.reason
    assert result.failure is not None
    return result


@pytest.mark.parametrize(
    ("name", "capability", "dtype", "message"),
    [
        ("unsteady", "repeated-calls", "float64", "the same call twice gives other bits; perhaps the order of a sum"),
        (
            "writes_to_its_keys",
            "memory",
            "float64",
            "the kernel writes to its arguments, or beside them; no single option explains it.",
        ),
        ("nan_forward_alone", "empty-rows", "float64", "rows that see no key are neither all 0 nor all NaN; "),
        ("scale_of_keys_forgotten", "scale", "float64", "dK at (b, g, t, e) = ("),
        ("scale_of_keys_forgotten", "scale", "float64", "perhaps the backward pass lacks the factor scale"),
        ("one_unit_off", "exact-weights", "bfloat16", "output at (b, h, l, m) = (0, 0, 0, "),
    ],
)
def test_the_diagnosis_says_where_by_how_much_and_perhaps_why(
    name: str, capability: str, dtype: str, message: str
) -> None:
    result = falsified(f"{PLANTED}:{name}", capability, dtype)
    assert result.failure is not None
    assert message in result.failure.line
    assert result.as_json()["diagnosis"] == result.failure.line
    assert "\n" not in result.failure.line


def test_the_diagnosis_recognises_base_two_and_a_running_maximum_that_starts_too_high() -> None:
    lines = []
    for name, capability in (
        ("log_sum_exp:lse_in_base_two", "log-sum-exp"),
        ("softmax_and_strides:finite_first_maximum", "output"),
    ):
        result = falsified(f"examples.real_faults.{name}", capability)
        assert result.failure is not None
        lines.append(result.failure.line)
    assert "perhaps the logarithm is to the base 2" in lines[0]
    assert "all far below 0: a running maximum that does not start at −∞" in lines[1]
