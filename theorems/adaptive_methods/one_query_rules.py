"""With a single query z, update rules on W are update rules on the prompt p = Wz with other step lengths.

Main result: row-normalised descent on W is sign descent on p, column-normalised and spectral descent (Muon) on W are
normalised gradient descent on p, and Adam on W is Adam on p.

Reference: derived here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from hypothesis.strategies import SearchStrategy
from jaxtyping import Float64

from generators.case import Case
from generators.query_cases import query_cases
from generators.steepest_descent.embeddings import embedded_query_cases, or_embedded
from reference_attention.floats import EPS
from reference_attention.problem import Problem
from reference_attention.risk import scaled_gradient
from reference_attention.training.iteration import batch_field
from reference_attention.training.steepest_descent import orthogonal_factor
from theorems.adaptive_methods.adam import Betas
from theorems.adaptive_methods.adam_bounds import AdamBounds, expected_steps, run_adam
from theorems.bounded import exact, value_of
from theorems.core.claim import Claim, Form, NotANumber, Undecided, at_least
from theorems.core.claim_name import premise, sharper
from theorems.core.implementation import Implementation
from theorems.core.kernel_use import SATURATED
from theorems.core.statement import statement
from theorems.core.tolerances import tolerance
from theorems.rounding.attention_at import AttentionAt
from theorems.rounding.descent_steps import starts_claim
from theorems.steepest_descent.steepest_run import StepSchedule

STEPS = 30
ASSUMPTIONS = ("queries-given", "single-input")
ROWS, COLUMNS, SPECTRAL, ADAM = "rows", "columns", "spectral", "adam"
QUERY_ROUNDING = tolerance(
    "one-query-rounding",
    "the error bound of the prompt's step, and eps (|W(t+1)||z| + (40 + 8 e + (6 + 4 |log scale|) t) η‖z‖_1) by entry;"
    " plus η‖z‖_2 (error/|Γ_r|)² where rows are normalised",
    "a step on W is rounded entry by entry and multiplied by z; an entry of the prompt's gradient whose sign or size is"
    " within its rounding determines no step; a row of W's gradient turns by an angle of at most its error divided by"
    " its length",
)
RUN = premise("rule-on-weights-is-the-one-asked-for")
SAME = sharper("step-on-weights-is-the-prompt-s")
Direction = Callable[[Float64[np.ndarray, "*b d e"]], Float64[np.ndarray, "*b d e"]]


def rows_normalised(matrices: Float64[np.ndarray, "*b d e"]) -> Float64[np.ndarray, "*b d e"]:
    """Return the matrices with every row divided by its ‖·‖_2; a row of zeros stays."""
    size = np.abs(matrices).max(axis=-1, keepdims=True)
    scaled = matrices / np.where(size > 0, size, 1.0)
    length = np.sqrt((scaled * scaled).sum(axis=-1, keepdims=True))
    return np.asarray(scaled / np.where(length > 0, length, 1.0))


def columns_normalised(matrices: Float64[np.ndarray, "*b d e"]) -> Float64[np.ndarray, "*b d e"]:
    """Return the matrices with every column divided by its ‖·‖_2; a column of zeros stays."""
    return np.asarray(np.swapaxes(rows_normalised(np.swapaxes(matrices, -1, -2)), -1, -2))


DIRECTIONS: dict[str, Callable[..., Any]] = {
    ROWS: rows_normalised,
    COLUMNS: columns_normalised,
    SPECTRAL: orthogonal_factor,
}


def one_query_cases() -> SearchStrategy[Case]:
    """Return a strategy for cases of one input with its query."""
    return or_embedded(query_cases(single=True), embedded_query_cases(single=True))


@statement(
    "one-query-rules",
    "With one query, update rules on W are update rules on the prompt",
    source="own",
    claims=(RUN, SAME),
    assumptions=ASSUMPTIONS,
    cases=one_query_cases,
    kernel=SATURATED,
    needs={
        "queries-given": "the case has no query, so there is no W to train",
        "single-input": "several queries have no common prompt Wz",
    },
    varies={"inputs-twice": "several inputs have no common prompt"},
)
def one_query_rules(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let a single query z ≠ 0 be given, p = Wz, and Γ = ∇L(p), so that ∇L(W) = Γzᵀ.

    A step of length η on W changes p by

    - −η‖z‖_2 sign Γ if rows are normalised: sign descent on p;
    - −η‖z‖_1 Γ/‖Γ‖_2 if columns are normalised: normalised gradient descent on p;
    - −η‖z‖_2 Γ/‖Γ‖_2 with the orthogonal factor (Muon without momentum): normalised gradient descent on p, too;
    - −η‖z‖_1 A(Γ) for Adam without ε, where A is Adam's step on p with the same β1, β2 and bias correction.

    So the theorems on prompts hold for W with these step lengths.

    **Derivation.** Row r of Γzᵀ is Γ_r z, of length |Γ_r|‖z‖_2; column j is z_jΓ, of length |z_j|‖Γ‖_2, and Σ_j z_j
    sign z_j = ‖z‖_1; the orthogonal factor is Γzᵀ/(‖Γ‖‖z‖). Adam's moments are M_rj = m_r z_j, V_rj = v_r z_j², so its
    entries are sign(z_j) m_r/√v_r. With ε > 0 this fails, because ε is not multiplied by |z_j|.

    Each step of a run on W is compared with the step on p that the gradients Γ at the points W(t)z give.
    """
    data, rng = case.queried, case.rng()
    assert data is not None
    if not data.queries.any():
        raise Undecided(SAME, "the query is 0, so W does not change the prompt", Form.EXACT)
    problem, z = case.problem, data.queries[0]
    prompts = Problem(data.X, problem.scores, problem.loss)
    size = 1 / problem.key_scale
    starts = size * rng.choice([0.0, 0.1, 3.0], (3, 1)) * rng.normal(size=(3, problem.d))
    lengths = size * float(rng.choice([0.05, 0.5])) / np.sqrt(np.arange(1.0, STEPS + 1))
    field = batch_field(problem.keys, problem.scores, problem.loss, under_test[scaled_gradient], (len(starts),))
    betas = Betas(*[(0.9, 0.999), (0.9, 0.9), (0.5, 0.9)][int(rng.integers(3))], corrected=bool(rng.random() < 0.5))
    for rule in (*DIRECTIONS, ADAM):
        if rule == ADAM:
            points = run_adam(under_test, field, starts, lengths, betas)
        else:
            points = matrix_descent(field, starts, lengths, under_test[DIRECTIONS[rule]], data.shape)
        yield starts_claim(RUN, points, starts, len(lengths))
        if points.shape != (len(lengths) + 1, *starts.shape) or not np.isfinite(points).all():
            raise NotANumber(RUN, "an iterate is missing or not finite")
        yield same_step(case, prompts, z, points, lengths, rule, betas, under_test)


def matrix_descent(
    field: Any, start: Float64[np.ndarray, "b k"], lengths: Float64[np.ndarray, "t"], direction: Direction, shape: Any
) -> Float64[np.ndarray, "r b k"]:
    """Run W(t+1) = W(t) − η_t direction(∇L(W(t))) and return all iterates W, flattened."""
    points = np.empty((len(lengths) + 1, *start.shape))
    points[0] = start
    for t, length in enumerate(lengths.tolist()):
        gradient = field(points[t])[1].reshape(-1, *shape)
        points[t + 1] = points[t] - length * direction(gradient).reshape(start.shape)
    return points


def same_step(
    case: Case,
    prompts: Problem,
    z: Float64[np.ndarray, "e"],
    points: Float64[np.ndarray, "r b k"],
    lengths: Float64[np.ndarray, "t"],
    rule: str,
    betas: Betas,
    under_test: Implementation,
) -> Claim:
    """Claim that (W(t+1) − W(t))z equals, entry by entry, the step on the prompt for the gradients at W(t)z."""
    shape = (prompts.d, len(z))
    matrices = exact(points.reshape(*points.shape[:2], *shape))
    p = matrices[:-1] @ z
    moved: Any = (matrices[1:] - matrices[:-1]) @ z
    at = AttentionAt(prompts, p.reshape(-1, prompts.d))
    log_scale = at.log_scale.reshape(p.shape[:-1])
    # A correct gradient Γzᵀ of W has rounding errors, which the comparison with Γ allows for.
    on_weights = AttentionAt(case.problem, points[:-1].reshape(-1, case.problem.d))
    allowed = on_weights.gradient_of(under_test, SAME).error.reshape(-1, *shape)[..., z != 0] / np.abs(z[z != 0])
    unit = np.exp(on_weights.log_scale - at.log_scale)[:, None]
    gradient = at.gradient.widen(allowed.max(axis=-1) * unit).reshape(p.shape)
    sums, length = np.sum(np.abs(exact(z))), np.linalg.norm(exact(z))
    step = exact(lengths)[:, None, None]
    tilt: Any = 0.0
    if rule == ROWS:
        size = np.abs(value_of(gradient))
        resolved = size > 2 * gradient.error
        # A row Γ_r z + e of the computed gradient makes an angle θ with ±z: 1 − cos θ ≤ sin² θ ≤ (‖e‖/|Γ_r|‖z‖)².
        tilt = np.where(resolved, gradient.error / np.where(resolved, size - gradient.error, 1.0), 0.0) ** 2
        expected, factor = np.where(resolved, np.sign(value_of(gradient)), 0.0), length
    elif rule == ADAM:
        bounds = AdamBounds(StepSchedule(lengths, 0.0), betas, exact(0.0), exact(0.0), exact(0.0))
        expected, resolved = expected_steps(gradient, log_scale, bounds)
        factor = sums
    else:
        whole: Any = np.linalg.norm(gradient, axis=-1)[..., None]
        resolved = np.broadcast_to(whole.value > 2 * whole.error, gradient.shape)
        expected = np.where(resolved, gradient / np.where(resolved, whole, 1.0), 0.0)
        factor = sums if rule == COLUMNS else length
    loops = 40 + 8 * len(z) + (6 + 4 * np.abs(log_scale).max()) * np.arange(1.0, len(lengths) + 1)[:, None, None]
    room = EPS * (value_of(np.abs(matrices[1:]) @ np.abs(z)) + loops * value_of(step * sums) * 8)
    room = room + value_of(step * length) * tilt
    step_error = np.where(resolved, np.abs(moved + step * factor * expected).widen(room), 0.0)
    return at_least(
        SAME, Form.EXACT, 0.0, step_error, why=QUERY_ROUNDING, scale=value_of(step * sums), points="entry of a step"
    )
