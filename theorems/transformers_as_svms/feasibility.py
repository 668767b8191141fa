"""If dimensions are large, every choice of tokens is separable: W in closed form, and its consequences for W^mm.

References: *Transformers as Support Vector Machines*, Theorem 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from jaxtyping import Int64

from generators.case import Case
from generators.query_assumptions import independent_rows, independent_tokens_and_queries, label_separating_queries
from generators.query_cases import independent, query_cases
from reference_attention.losses import DRAWN_LOSSES
from reference_attention.query_dataset import QueryDataset
from theorems.core.claim import Claim
from theorems.core.claim_name import premises, sharper
from theorems.core.dataset_claims import QUERY_CLAIMS, query_claims
from theorems.core.implementation import Implementation
from theorems.core.kernel_use import SVM_ONLY
from theorems.core.statement import statement
from theorems.transformers_as_svms.feasible_solution import (
    BOTH,
    BY_LABELS,
    BY_QUERIES,
    BY_SINGULAR_VALUES,
    EXISTS,
    IS_FEASIBLE,
    IS_THAT_OF_ROWS,
    IS_THE_PROJECTION,
    LABELS_GIVE_ONE,
    NO_LONGER,
    PSEUDOINVERSES,
    ROWS_GIVE_ONE,
    ClaimChecks,
    SolutionChecks,
)
from theorems.transformers_as_svms.feasible_weights import smallest_gap

INDEPENDENCE = sharper("independence-of-rows-follows", when=BOTH)

MORE = 2
"""The number of random choices of tokens that are checked besides the case's α and the optimal tokens."""


@st.composite
def _cases(draw: DrawFn) -> Case:
    """Draw a case in which one or several of the theorem's hypotheses hold.

    Half of the cases are separable by construction and satisfy several hypotheses; the others satisfy only one.
    """
    kind = draw(st.sampled_from(("any", "crowded", "any", "many inputs")))
    if kind == "many inputs":
        return draw(_many_inputs())
    case = draw(query_cases(alpha="any"))
    return _crowd(case) if kind == "crowded" else case


def _crowd(case: Case) -> Case:
    """Return the case with additional tokens whose rows are twice the rows of existing tokens.

    The rows are then dependent, so that only the hypothesis that queries separate the labels can still hold.
    """
    data, problem = case.queried, case.problem
    assert data is not None
    best = np.take_along_axis(data.X, problem.optimal[:, None, None], axis=1)
    others = data.X[np.arange(problem.T) != problem.optimal[:, None]].reshape(problem.n, problem.T - 1, -1)
    crowded = replace(data, X=np.concatenate([data.X, best + 2 * (others - best)], axis=1))
    return case.replace(problem=crowded.problem, queried=crowded)


@st.composite
def _many_inputs(draw: DrawFn) -> Case:
    """Draw a case of more inputs than dimensions, n > d, with independent rows and distinct scores per input."""
    d, T, n = draw(st.sampled_from(((2, 2, 3), (2, 2, 4), (3, 2, 4), (3, 3, 4))))
    self_attention, seed, loss = (
        draw(st.booleans()),
        draw(st.integers(0, 2**32 - 1)),
        draw(st.sampled_from(DRAWN_LOSSES)),
    )
    rng = np.random.default_rng(seed)
    while True:
        X = rng.integers(-6, 7, size=(n, T, d)) / 2
        X[:, :, 0] = rng.permuted(np.tile(np.arange(-2.0, 3.0), (n, 1)), axis=1)[:, :T]
        queries = X[:, 0].copy() if self_attention else rng.integers(-6, 7, size=(n, d)) / 2
        data = QueryDataset(X, queries, rng.choice([-1.0, 1.0], size=n), np.eye(d)[0], loss)
        alpha = rng.integers(T, size=n)
        # Rows of random data are almost always independent; dependent rows are drawn again.
        if independent(data.keys, alpha):
            return Case(data.problem, queried=data, alpha=alpha, seed=seed)


@statement(
    "tsvm-feasibility",
    "Every choice of tokens is separable where dimensions are large",
    source="T-SVM, Theorem 1",
    claims=(
        PSEUDOINVERSES,
        INDEPENDENCE,
        BY_QUERIES,
        BY_SINGULAR_VALUES,
        NO_LONGER,
        ROWS_GIVE_ONE,
        IS_THAT_OF_ROWS,
        LABELS_GIVE_ONE,
        BY_LABELS,
        EXISTS,
        IS_FEASIBLE,
        IS_THE_PROJECTION,
        *QUERY_CLAIMS,
    ),
    assumptions=("queries-given",),
    cases=_cases,
    kernel=SVM_ONLY,
)
def tsvm_feasibility(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """If d ≥ max(T − 1, n), almost all data make ATT-SVM(α) feasible for every choice α of tokens.

    This holds for cross- and for self-attention. Each hypothesis is decided on the data of the case, and the margins of
    each W below are decided over the rationals.

    **Independent tokens and queries.** Let D_i with the rows x_iα − x_it have rank T − 1, and Z with the columns z_i
    rank n; this needs d ≥ max(T − 1, n), and then holds for almost all data. With w_i = D_i⁺1, W = [w_1 … w_n] Z⁺ has
    W z_i = w_i, so that all margins are exactly 1, and

        ‖W^mm‖_F² ≤ ‖W‖_F² ≤ Σ‖w_i‖²/σ_min(Z)² ≤ n(T−1)/(min_i σ_min(D_i)² σ_min(Z)²).

    The claims bound ‖W^mm‖_F² with rational lower bounds s of σ_min², for which D Dᵀ − s I ⪰ 0 is proven. As rank W ≤
    n, the least nuclear norm is at most √n times the bound of ‖W‖_F; no claim checks this.

    **Sharper: independent rows** (x_iα − x_it) z_iᵀ, for one α and therefore for every α. W = G⁺1 has all margins 1.
    Independent tokens and queries imply independent rows (Σ c_it (x_iα − x_it) z_iᵀ = 0 applied to the dual basis of
    the z_i gives D_iᵀc_i = 0). Then ‖G⁺1‖ ≤ ‖[w_1 … w_n] Z⁺‖, as G⁺1 is the shortest W with all margins 1. **Sharp**:
    W^mm = G⁺1 if and only if its multipliers (GGᵀ)⁻¹1 are ≥ 0, the KKT conditions.

    T − 1 ≤ d and n(T − 1) ≤ d e suffice for almost all data (queries have e entries; for self-attention d e = d²).
    Proof: dependence is a polynomial condition, so one independent point is enough. With k = T − 1 let U_i be k of the
    d coordinate vectors, taken cyclically, so that each e_j is in at most ⌈nk/d⌉ ≤ e of the U_i, and let any e of the
    z_i be independent. Rows e_j z_iᵀ of different j are orthogonal, and rows of the same j are independent. With
    self-attention such a point is reached by z_i = x_i1 and x_it = x_i1 − u_t, u_t ∈ U_i, for α = 1. Tests try small
    (d, e, T, n).

    **For any number of tokens**, let queries separate the labels, Y_i q·z_i ≥ 1, and one token of each input be best.
    W = v qᵀ/min gap has the margins (γ_i,opt − γ_it) Y_i q·z_i/min gap ≥ 1 for opt, and ‖W^mm‖_F ≤ ‖v‖‖q‖/min gap. As W
    has rank one, ‖v‖‖q‖/min gap bounds the least nuclear norm as well. Independent queries separate any labels, so n
    independent queries make opt feasible.

    **Claims on the solver**, for the case's α, the optimal tokens and some random choices: the solver finds a solution
    W^mm with margins of at least 1. W^mm is the projection of the origin on the feasible W: ⟨W^mm, W⟩ ≥ m ‖W^mm‖_F² for
    each W above with margins ≥ m, which implies ‖W^mm‖_F ≤ ‖W‖_F/m.
    """
    yield from premises(query_claims(case, under_test))
    data = case.queried
    assert data is not None
    checked = ClaimChecks()
    independent, rows = independent_tokens_and_queries(case).holds, independent_rows(case).holds
    labels = label_separating_queries(case).holds and smallest_gap(data) > 0
    if independent:
        checked.check(INDEPENDENCE, bool(rows), independent_rows(case).evidence)
    for alpha in _choices(case) if rows or independent else []:
        chosen = SolutionChecks(case, data, alpha, under_test, checked)
        if independent:
            chosen.by_pseudoinverses()
        if rows:
            chosen.by_rows()
    if labels:
        SolutionChecks(case, data, case.problem.optimal, under_test, checked).by_labels()
    yield from checked.claims()


def _choices(case: Case) -> list[Int64[np.ndarray, "n"]]:
    """Return the case's α, the optimal tokens and random choices, without repetition."""
    rng, problem = case.rng(), case.problem
    random_choices = rng.integers(problem.T, size=(MORE, problem.n))
    unique = {tuple(alpha.tolist()): alpha for alpha in (case.chosen_tokens, problem.optimal, *random_choices)}
    return list(unique.values())
