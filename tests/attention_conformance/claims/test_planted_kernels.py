"""Kernels that are wrong in one way each, for capabilities that no kernel in the gallery breaks: the claim about the
fault is falsified, and other capabilities are not.
"""

from __future__ import annotations

import pytest

import attention_conformance.claims.call_shrinker
from attention_conformance.kernel.check import verify_kernel
from tests.attention_conformance.claims import planted_kernels
from theorems.core.claim import Verdict

PLANTED = (
    ("output", "warm", "output-is-attention", "float64"),
    ("output", "warm", "output-is-attention", "float32"),
    ("output", "flat", "output-is-attention", "float64"),
    ("scale", "scale_of_keys_forgotten", "key-gradient", "float64"),
    ("default-scale", "root_of_keys", "output-is-attention", "float64"),
    ("softcap", "cap_not_differentiated", "key-gradient", "float64"),
    ("repeated-calls", "left_over", "query-gradient", "float64"),
    ("repeated-calls", "unsteady", "same-bits", "float64"),
    ("memory", "writes_to_its_keys", "inputs-are-unchanged", "float64"),
    ("empty-rows", "nan_forward_alone", "rows-that-see-nothing", "float64"),
    ("empty-rows", "nan_of_other_entries", "value-gradient", "float64"),
    ("empty-rows", "nan_of_other_rows", "query-gradient", "float64"),
    ("empty-rows", "zeros_forward_alone", "value-gradient", "float64"),
    ("empty-rows", "zeros_forward_alone", "value-gradient", "float16"),
    ("hidden-keys", "scaled_by_the_largest_value", "hidden-keys-change-no-output", "float64"),
    ("exact-weights", "one_unit_off", "output-is-attention", "bfloat16"),
    ("exact-weights", "one_unit_off", "output-is-attention", "float16"),
)
"""The capability in which a kernel is wrong, the kernel's name, a claim that must be falsified, and a number format."""
EXAMPLES = [20, pytest.param(25, marks=pytest.mark.nightly)]
"""Numbers of calls for each kernel; in the nightly run every pair of options occurs."""


@pytest.fixture(autouse=True)
def _little_shrinking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_conformance.claims.call_shrinker, "TRIALS", 30)


@pytest.mark.parametrize("examples", EXAMPLES)
@pytest.mark.parametrize(("capability", "name", "claim", "dtype"), PLANTED)
def test_a_planted_fault_is_caught_by_the_claim_about_it(
    capability: str, name: str, claim: str, dtype: str, examples: int
) -> None:
    kernel = getattr(planted_kernels, name)
    (result,) = verify_kernel(kernel, statements=[f"kernel-{capability}"], examples=examples, dtype=dtype)
    assert result.verdict is Verdict.FALSIFIED, result.reason
    falsified = [item.name for item in result.claims if item.verdict is Verdict.FALSIFIED]
    assert claim in falsified


@pytest.mark.parametrize(
    ("capability", "name", "dtype"),
    [
        ("boolean-mask", "scaled_by_the_largest_value", "float64"),
        ("boolean-mask", "nan_forward_alone", "float64"),
        ("gradients", "cap_not_differentiated", "float64"),
        ("output", "scale_of_keys_forgotten", "float64"),
    ],
)
def test_a_planted_fault_does_not_falsify_another_capability(capability: str, name: str, dtype: str) -> None:
    kernel = getattr(planted_kernels, name)
    (result,) = verify_kernel(kernel, statements=[f"kernel-{capability}"], examples=8, dtype=dtype)
    assert result.verdict is Verdict.UPHELD, result.reason
