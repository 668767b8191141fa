"""Solutions have low rank: the rows of W^mm are in the span of queries, its columns in the span of token differences.

References: *Transformers as Support Vector Machines*, Lemma 2.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from flint import fmpq, fmpq_mat
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from generators.case import Case
from generators.query_assumptions import orthogonal_queries
from generators.query_cases import query_cases
from reference_attention.exact import rational_matrix
from reference_attention.problem import Problem
from reference_attention.query_dataset import QueryDataset
from reference_attention.svm.max_margin import Infeasible, max_margin
from theorems.core.att_svm import solve_att_svm
from theorems.core.claim import Claim, Form
from theorems.core.claim_name import premise, premises, sharper, stated_claim
from theorems.core.dataset_claims import QUERY_CLAIMS, query_claims
from theorems.core.implementation import Implementation
from theorems.core.kernel_use import SVM_ONLY
from theorems.core.statement import statement
from theorems.core.svm_certificate import SVM_IS_OPTIMAL, svm_claim
from theorems.core.tolerances import EXACT
from theorems.transformers_as_svms.nuclear_rank import NUCLEAR_RANK_CLAIMS, nuclear_rank_claims

IN_SPAN_OF_QUERIES = stated_claim("rows-in-span-of-queries")
IN_SPAN_OF_DIFFERENCES = sharper("columns-in-span-of-differences")
RANK = sharper("rank-at-most-supporting-inputs")
RANK_ONE = sharper("single-input-is-rank-one", when="where n = 1")
DECOUPLE = sharper("orthogonal-queries-decouple", when="where n > 1 and queries are mutually orthogonal")
TOKEN_SVM_IS_OPTIMAL = premise("token-svm-is-optimal", when="where n = 1 or queries are mutually orthogonal")


@st.composite
def _cases(draw: DrawFn) -> Case:
    """Draw a case in which tokens and queries usually do not span their spaces.

    Tokens and queries get one more coordinate, a linear combination of the others. For orthogonal queries the new
    coordinate is 0, so that they remain orthogonal.
    """
    case = draw(query_cases(alpha="any"))
    data = case.queried
    assert data is not None
    if draw(st.integers(0, 3)) == 0:
        return case
    d, e = data.shape
    mixed = np.array(draw(st.lists(st.integers(-2, 2), min_size=max(d, e), max_size=max(d, e))), dtype=np.float64)
    X = np.concatenate([data.X, (data.X @ mixed[:d])[:, :, None]], axis=2)
    tilt = mixed[:e] * (not orthogonal_queries(case).holds)
    queries = np.concatenate([data.queries, (data.queries @ tilt)[:, None]], axis=1)
    wider = QueryDataset(X, queries, data.Y, np.append(data.v, 0.0), data.loss)
    return case.replace(problem=wider.problem, queried=wider)


@statement(
    "tsvm-rank",
    "Solutions have rank at most the number of supporting inputs",
    source="T-SVM, Lemma 2",
    claims=(
        SVM_IS_OPTIMAL,
        IN_SPAN_OF_QUERIES,
        IN_SPAN_OF_DIFFERENCES,
        RANK,
        RANK_ONE,
        DECOUPLE,
        TOKEN_SVM_IS_OPTIMAL,
        *QUERY_CLAIMS,
        *NUCLEAR_RANK_CLAIMS,
    ),
    assumptions=("queries-given", "separable"),
    cases=_cases,
    kernel=SVM_ONLY,
    needs={"separable": "W^mm exists only if ATT-SVM is feasible"},
)
def tsvm_rank(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let ATT-SVM(α) be feasible. Its solution W^mm has rows in span{z_i}, so rank W^mm ≤ n.

    **Sharper, exact.** W^mm = Σ_it λ_it (x_iα − x_it) z_iᵀ = Σ_i u_i z_iᵀ with u_i = Σ_t λ_it (x_iα − x_it), for every
    dual solution λ ≥ 0. Let S be the inputs that have a positive dual in λ. The rows of W^mm are in span{z_i : i ∈ S},
    its columns in span{x_iα − x_it : λ_it > 0}, and rank W^mm ≤ #S ≤ n. Duals need not be unique, so the bound holds
    even for the dual solution with the fewest inputs. The claim uses the dual solution that the solver returns, in
    which the rows with positive duals are linearly independent.

    **n = 1.** W^mm = p_mm zᵀ/‖z‖², where p_mm is the solution of ATT-SVM(α) on the tokens.

    **Orthogonal queries decouple.** If z_i·z_j = 0 for i ≠ j, then W^mm = Σ_i p_i z_iᵀ/‖z_i‖², where p_i is the
    solution of ATT-SVM(α_i) on only the tokens of input i. Derivation: W^mm z_i is feasible for input i, so ‖W^mm z_i‖
    ≥ ‖p_i‖. Σ_i ‖W z_i‖²/‖z_i‖² ≤ ‖W‖_F², with equality at W = Σ_i p_i z_iᵀ/‖z_i‖², which is feasible; and the solution
    is unique.

    **The nuclear norm.** Every solution W_⋆ of ATT-SVM⋆(α) has rows in span{z_i}: W_⋆ P_Z has the same margins, and
    ‖W P_Z‖_⋆ ≤ ‖W‖_⋆ with equality only if W(I − P_Z) = 0, as WWᵀ = W P_Z Wᵀ + W(I − P_Z)Wᵀ and √ is operator monotone.
    Sharper: W_⋆ = KQᵀ with K = MQ, Q = MᵀK and M = Σ λ_it (x_iα − x_it) z_iᵀ for its dual λ, so only inputs and
    constraints with positive duals enter the spans. If W_⋆ is the only solution, P ↦ (⟨G_j, U1 P V1ᵀ⟩)_S is injective
    on symmetric r × r matrices, so that there are #S ≥ r(r+1)/2 tight constraints (Barvinok, Pataki).

    The solver's certificate is checked first; the other claims are checked for the returned solution even if the
    certificate is wrong. All claims except those on the nuclear norm are decided over the rationals.
    """
    yield from premises(query_claims(case, under_test))
    data, alpha, problem = case.queried, case.chosen_tokens, case.problem
    assert data is not None
    svm = solve_att_svm(problem, alpha, under_test, SVM_IS_OPTIMAL)
    yield svm_claim(problem, alpha, svm)
    W = fmpq_mat(*data.shape, list(svm.exact.p))
    support = [pair for pair, weight in sorted(svm.exact.duals.items()) if weight != 0]
    inputs = sorted({i for i, _ in support})
    queries = rational_matrix(data.queries[inputs])
    yield _in_span(IN_SPAN_OF_QUERIES, W, queries.tolist())
    differences = [_difference(data, case, *pair) for pair in support]
    yield _in_span(IN_SPAN_OF_DIFFERENCES, W.transpose(), differences)
    rank = int(W.rank())
    yield _claim(RANK, rank <= len(inputs), f"rank {rank}, {len(inputs)} inputs")
    if problem.n == 1 or orthogonal_queries(case).holds:
        yield from _decoupling_claims(case, data, W, under_test)
    yield from nuclear_rank_claims(case, under_test)


def _difference(data: QueryDataset, case: Case, i: int, t: int) -> list[fmpq]:
    """Return the token difference x_iα − x_it, exactly."""
    chosen, other = rational_matrix(data.X[i][[int(case.chosen_tokens[i]), t]]).tolist()
    return [a - b for a, b in zip(chosen, other, strict=True)]


def _in_span(name: str, rows: fmpq_mat, span: list[list[fmpq]]) -> Claim:
    """Claim that each row of ``rows`` is a linear combination of the rows of ``span``."""
    alone = int(fmpq_mat(span).rank()) if span else 0
    together = int(fmpq_mat([*span, *rows.tolist()]).rank())
    return _claim(name, alone == together, f"rank {alone}; with the solution's rows {together}")


def _decoupling_claims(case: Case, data: QueryDataset, W: fmpq_mat, under_test: Implementation) -> Iterator[Claim]:
    """Claim W^mm = Σ_i p_i z_iᵀ/‖z_i‖², where p_i is the solution for the tokens of input i."""
    total = fmpq_mat(*data.shape)
    for i, query in enumerate(rational_matrix(data.queries).tolist()):
        single, alpha = Problem(data.X[i : i + 1], case.problem.scores[i : i + 1]), case.chosen_tokens[i : i + 1]
        solution = under_test[max_margin](single.exact_keys, alpha)
        if isinstance(solution, Infeasible):
            yield _claim(TOKEN_SVM_IS_OPTIMAL, False, f"ATT-SVM on the tokens of input {i} is called infeasible")
            return
        yield svm_claim(single, alpha, solution, name=TOKEN_SVM_IS_OPTIMAL)
        size = sum((b * b for b in query), fmpq(0))
        total += fmpq_mat([[a * b / size for b in query] for a in solution.exact.p])
    yield _claim(RANK_ONE if case.problem.n == 1 else DECOUPLE, total == W, f"{case.problem.n} solutions on tokens")


def _claim(name: str, holds: bool, detail: str) -> Claim:
    return Claim(name, Form.EXACT, 0.0 if holds else -1.0, 0.0, EXACT, detail)
