"""In statements that train W, a kernel gets the query W z_i for each input i, where z_i is the input's query token."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from attention_conformance import attention_kernel
from attention_conformance.kernel.kernel_loader import kernel_of
from examples import kernels
from generators.case import Case
from generators.datasets import dataset_named
from reference_attention.risk import risk, scaled_gradient, softmax_weights
from theorems.bounded import Bounded
from theorems.core.implementation import REFERENCE
from theorems.rounding.attention_at import AttentionAt

SHAPES: list[tuple[int, ...]] = []


def first_query_only(query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Use the first input's query for every input, which is right if all inputs share one prompt."""
    SHAPES.append(tuple(query.shape))
    return kernels.handwritten(query[:, :1].expand_as(query), keys, values)


def case_of(scale: float = 1.0) -> Case:
    case = dataset_named("tsvm-sphere")
    assert case.queried is not None
    data = case.queried.with_queries_scaled(scale)
    return Case(data.problem, queried=data).normalise()


def some_weights(case: Case) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(4, case.problem.d)) * 3


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("scale", [1.0, 2.0**60])
def test_weights_risk_and_gradient_with_respect_to_W_agree_with_the_reference(dtype: str, scale: float) -> None:
    case = case_of(scale)
    problem, W = case.problem, some_weights(case)
    under_test = kernel_of(kernels.handwritten, dtype).as_implementation().bind_to_case(case)
    at = AttentionAt(problem, W, under_test.textbook_eps)
    ours, theirs = at.gradient, at.gradient_of(under_test, "gradient")
    assert isinstance(theirs, Bounded)
    assert (np.abs(theirs.value - ours.value) <= theirs.error).all()
    assert np.abs(theirs.value - ours.value).max() > 0
    ours_and_theirs = (item[softmax_weights](problem.keys, W) for item in (REFERENCE, under_test))
    assert np.abs(np.subtract(*ours_and_theirs)).max() < 1e3 * under_test.textbook_eps
    risks = [item[risk](problem.keys, problem.scores, problem.loss, W) for item in (REFERENCE, under_test)]
    assert np.abs(np.subtract(*risks)).max() < 1e3 * under_test.textbook_eps


def test_tensors_have_the_dimension_of_tokens_and_one_query_per_input() -> None:
    """A kernel that uses the first input's query for all inputs is right with one shared prompt, but wrong here."""
    case = case_of()
    problem, W = case.problem, some_weights(case)
    told = attention_kernel(layout="bhld", causal="never", scale=1.0)(first_query_only)
    plain = kernel_of(told).as_implementation()
    SHAPES.clear()
    asked = plain.bind_to_case(case)
    right, wrong, prompted = (
        item[risk](problem.keys, problem.scores, problem.loss, W) for item in (REFERENCE, asked, plain)
    )
    assert SHAPES[0] == (4, 6, 1, 10)
    assert np.abs(wrong - right).max() > 1e-3
    assert np.abs(prompted - right).max() < 1e-12


def test_keys_of_another_problem_are_attended_to_with_a_prompt() -> None:
    case = case_of()
    under_test = kernel_of(kernels.handwritten).as_implementation().bind_to_case(case)
    keys, p = np.random.default_rng(1).normal(size=(2, 3, 4)), np.ones(4)
    assert np.allclose(under_test[softmax_weights](keys, p), softmax_weights(keys, p), atol=1e-12)
    scores = np.arange(6.0).reshape(2, 3)
    given = (keys, scores, case.problem.loss, p)
    assert np.allclose(under_test[risk](*given), risk(*given), atol=1e-12)
    gradients = (
        np.exp(g.log_scale) * g.direction for g in (under_test[scaled_gradient](*given), scaled_gradient(*given))
    )
    assert np.allclose(*gradients, atol=1e-12)
    assert REFERENCE.bind_to_case(case) is REFERENCE
