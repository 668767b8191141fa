"""Growth along the Gen-SVM solution with a ReLU head, for data whose masked tokens need not increase the loss.

References: *Transformers as Support Vector Machines*, Section 6.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from generators.case import Case
from generators.numbers import integers
from generators.optimal_sets import HEAD_ARRAYS, head_of
from generators.relu_heads import RELU, STEP, STEPS
from reference_attention.query_dataset import QueryDataset
from reference_attention.risk import scaled_gradient
from reference_attention.training.relu_descent import ReluRun
from theorems.core.claim import Claim
from theorems.core.implementation import Implementation
from theorems.transformers_as_svms.conjecture_mixing import growth_claims
from theorems.without.weakening import weaken


@st.composite
def _sums_of_units(draw: DrawFn) -> Case:
    """Draw two inputs with labels 1 and −1, small integers as tokens and queries, and the head h(x) = Σ_a relu(x_a)."""
    T, d = draw(st.integers(2, 3)), 2
    X = draw(integers((2, T, d), -2, 2, most=(2, 3, 2))).astype(float)
    queries = draw(integers((2, 2), -2, 2)).astype(float)
    Y = np.array([1.0, -1.0])
    head = (X, np.ones(d), np.full(d, float(RELU)), Y)
    arrays = MappingProxyType(dict(zip(HEAD_ARRAYS, head, strict=True)))
    data = QueryDataset(X, queries, Y, np.ones(d))
    return Case(data.problem, queried=data, arrays=arrays)


@weaken(
    "conjecture-mixing",
    without="masked-tokens-cost",
    refutes="W(k) grows along W^mm of Gen-SVM, for the tokens whose weights stay away from 0, and stays near its ray",
    cases=_sums_of_units,
)
def free_tokens(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let a token without weight not increase the loss: then it need not be a constraint of Gen-SVM.

    Such a token ties with the tokens that have weight, or belongs to an input whose ReLU units are all inactive.
    """
    run = ReluRun.of(case.problem, head_of(case), STEP / case.problem.key_scale, STEPS, under_test[scaled_gradient])
    yield from growth_claims(case, run, under_test)
