"""Small functions behind a verdict, compared with values computed by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from generators.case import Case
from reference_attention.problem import Problem
from reference_attention.query_dataset import QueryDataset
from tests.places import ROOT
from theorems.core.check import _not_found
from theorems.core.claim import UNBOUNDED, Claim, Form, Verdict, at_least
from theorems.core.dataset_claims import query_claims
from theorems.core.implementation import REFERENCE
from theorems.core.kernel_use import BELOW_ROUNDING, FAR, SATURATED, SVM_ONLY, KernelUse, calls
from theorems.core.key_rows import key_rows
from theorems.core.points import with_margin
from theorems.core.recorded_files import COUNTEREXAMPLES, RECORDED
from theorems.core.tolerances import EXACT


def claim(slack: float, not_found: bool = False, undecided: str = "") -> Claim:
    return Claim("sum", Form.EXACT, slack, 0.0, EXACT, undecided=undecided, not_found=not_found)


@pytest.mark.parametrize(
    ("claims", "found"),
    [
        ([], False),
        ([claim(1.0)], False),
        ([claim(math.nan, True, "search")], True),
        ([claim(1.0), claim(math.nan, True, "search")], True),
        ([claim(math.nan, False, "digits"), claim(math.nan, True, "search")], False),
        ([claim(-1.0), claim(math.nan, True, "search")], False),
    ],
)
def test_a_case_counts_as_not_found_only_if_no_other_claim_is_undecided(claims: list[Claim], found: bool) -> None:
    assert _not_found(claims) is found


def test_key_differences_of_outer_products_are_flattened_row_by_row() -> None:
    """Differences of keys are the matrices (x_iα − x_it) z_iᵀ, flattened row by row."""
    data = QueryDataset([[[1.0, 2.0], [4.0, 8.0]]], [[1.0, 10.0, 100.0]], [1.0], [1.0, 0.0], "correlation")
    result = key_rows(data.problem, np.array([1]))
    assert result.value.tolist() == [[[3, 30, 300, 6, 60, 600], [0] * 6]]
    dense = key_rows(Problem(data.problem.keys, data.problem.scores), np.array([1]))
    assert (dense.value == result.value).all()
    both = key_rows(data.problem, np.array([[1], [0]]))
    assert both.value.tolist() == [result.value.tolist(), [[[0] * 6, [-3, -30, -300, -6, -60, -600]]]]
    rounded = QueryDataset([[[0.1, 0.3], [0.7, 0.9]]], [[0.1, 0.7, 1.1]], [1.0], [1.0, 0.0], "correlation")
    assert rounded.problem.factors is not None
    result = key_rows(rounded.problem, np.array([[1], [0]]))
    keys = rounded.problem.keys[0]
    assert result.value.shape == (2, 1, 2, 6)
    assert abs(result.value[:, 0] - (keys[[[1], [0]]] - keys)).max() < 1e-15
    verdicts = {item.name: str(item.verdict) for item in query_claims(Case(data.problem, queried=data), REFERENCE)}
    assert verdicts == {"scores-are-products": "upheld", "keys-are-outer-products": "upheld"}


def test_with_margin_moves_a_point_along_a_short_key_difference() -> None:
    moved = with_margin(np.array([[1.0, 2.0]]), np.array([[0.25, 0.0]]), np.array([1.0]))
    assert moved.tolist() == [[4.0, 2.0]]


def test_in_a_checkout_the_folder_of_counterexamples_is_at_the_top_level() -> None:
    assert RECORDED == ROOT
    assert COUNTEREXAMPLES.is_dir()


@pytest.mark.parametrize("use", [SVM_ONLY, BELOW_ROUNDING, FAR, SATURATED])
def test_a_result_without_a_kernel_call_is_recognised(use: KernelUse) -> None:
    assert not use.called
    assert calls("somewhere", turn=1).called


def test_a_claim_with_an_infinite_tolerance_is_undecided_and_says_why() -> None:
    claim = at_least("any", Form.EXACT, [1.0], [2.0], rounding=[math.inf])
    assert claim.verdict is Verdict.INCONCLUSIVE
    assert claim.undecided == UNBOUNDED
