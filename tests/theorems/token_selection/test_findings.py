"""The findings of FINDINGS.md about the paper, derived a second time without code of the suite.

Each test asserts the hypotheses of the statement as well as what happens. A row is a difference k_opt − k_t.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from flint import arb, fmpq
from scipy.integrate import solve_ivp
from scipy.optimize import minimize_scalar

from generators.assumptions import ASSUMPTIONS
from generators.case import Case
from generators.datasets import dataset_named
from generators.optimal_tokens import token_optimality
from reference_attention.losses import LOSSES
from reference_attention.problem import Dataset, Problem
from reference_attention.svm.label_svm import LabelSvm, label_svm
from reference_attention.svm.max_margin import MaxMargin, max_margin
from reference_attention.training.flow import gradient_flow
from tests.theorems import oracle


def log_output(margins: list[arb], score_gaps: list[int]) -> arb:
    """Return γ_α − γᵀs = Σ gap_t e^{−m_t}/(1 + Σ e^{−m_u}) for tokens of margins m, with softmax weights s."""
    weights = [(-m).exp() for m in margins]
    lost = sum((gap * w for gap, w in zip(score_gaps, weights, strict=True)), arb(0))
    return lost / (1 + sum(weights, arb(0)))


@pytest.mark.parametrize("R", [10, 100, 1000])
def test_a_neighbour_of_equal_score_reverses_lemma_8b(R: int) -> None:
    """Take keys (0,0), (−1,0), (−2,1), scores 0, 0, −1, loss −u, q1 = (2,1)/√5, q2 = (1,0), and the first token as α.

    The margins along q1 are 2/√5, over the token of equal score, which is the only neighbour of q1, and 3/√5; those
    along q2 are 1 and 2. So both directions select α alone, the least margin θ is smaller for q1, and q1 is not
    neighbour-optimal by Definition 3; Lemma 8 (b) claims L(R q1) < L(R q2), which is false.
    """
    with oracle.precision(20 * R + 200):
        root = arb(5).sqrt()
        first, second = [2 / root, 3 / root], [arb(1), arb(2)]
        assert all(m > 0 for m in first + second)
        assert first[0] < first[1]  # only the token that scores like α is a neighbour of q1
        assert first[0] < min(second)
        gaps = [0, 1]
        risk_1, risk_2 = (log_output([R * m for m in margins], gaps) for margins in (first, second))
        assert risk_1 > risk_2


@pytest.mark.parametrize(("start", "end"), [((0.0, 0.0), 0.462098120373), ((0.0, -2.0), -0.952421294411)])
def test_rows_that_do_not_support_move_what_the_flow_keeps_of_its_start(start: tuple[float, float], end: float) -> None:
    """Take n = 1 and the rows (1, 0), which has a positive dual, and (2, 1), which has not: the flow follows the
    gradient flow of e^{−x} + e^{−2x−y}.

    With w = x + y, dy/dw = e^{−w}/(1 + 3e^{−w}), so y increases by log(1 + 3e^{−w(0)})/3: from 0 to 0.462, and from −2
    to −0.952.
    """
    keys = np.array([[[0.0, 0.0], [-1.0, 0.0], [-2.0, -1.0]]])
    problem = Problem(keys, np.array([[1.0, 0.0, 0.0]]), LOSSES["logistic"])
    case = Case(problem, start=np.array(start))
    for id in ("well-behaved-loss", "strict-optimum", "equal-non-optimal-scores", "separable", "single-input"):
        assert ASSUMPTIONS[id].check(case).holds
    svm = max_margin(keys, problem.optimal)
    assert isinstance(svm, MaxMargin)
    assert svm.p.tolist() == [1, 0]
    assert svm.neighbours.tolist() == [[False, True, False]]

    rise = math.log1p(3 * math.exp(-sum(start))) / 3
    assert math.isclose(start[1] + rise, end, rel_tol=1e-11)
    curve = solve_ivp(  # dy/dx along the gradient flow of e^{−x} + e^{−2x−y}
        lambda x, y: np.exp(-x - y) / (1 + 2 * np.exp(-x - y)), (start[0], 60.0), [start[1]], rtol=1e-11, atol=1e-12
    )
    assert math.isclose(curve.y[0, -1], end, abs_tol=1e-9)
    flow = gradient_flow(problem, np.array(start), norm=1e6)
    assert math.isclose(flow.final[1], end, abs_tol=1e-6)


GIVES_UP = Dataset(
    X=np.array([[[1.0, 5.0], [0.0, 0.0]], [[1.0, -5.0], [0.0, 0.0]], [[2.0, 0.0], [0.0, 0.0]]]),
    Y=np.ones(3),
    v=np.array([1.0, 0.0]),
    loss=LOSSES["logistic"],
)
"""Three inputs, with (1, 5), (1, −5) and (2, 0) as optimal tokens, and zero as the other token; keys are the tokens."""


def best_head(features: np.ndarray, r: float) -> tuple[float, np.ndarray]:
    """Return the least Σ log(1 + e^{−v·z}) over ‖v‖ = r and its minimiser v, for given features z."""

    def head(angle: float) -> np.ndarray:
        return r * np.array([math.cos(angle), math.sin(angle)])

    def total(angle: float) -> float:
        return float(np.logaddexp(0.0, -features @ head(angle)).sum())

    around = min(np.linspace(-np.pi, np.pi, 361), key=total)
    result = minimize_scalar(total, bounds=(around - 0.02, around + 0.02), method="bounded", options={"xatol": 1e-10})
    return float(result.fun), head(result.x)


def test_a_small_fixed_head_gives_up_an_input_and_leaves_p_mm() -> None:
    """On data that satisfy the assumptions of Theorem 6, with the bound r on ‖v‖ fixed: at r = 0.5 minimising the risk
    gives one input's optimal token no weight, and at r = 5 it selects all optimal tokens.
    """
    case = Case(GIVES_UP.problem, dataset=GIVES_UP, alpha=np.zeros(3, dtype=np.int64))
    assert ASSUMPTIONS["optimal-support-tokens"].check(case).holds
    features = GIVES_UP.X[:, 0]
    head = label_svm(features)
    assert isinstance(head, LabelSvm)
    assert head.support.tolist() == [True, True, False]
    svm = max_margin(GIVES_UP.X, np.zeros(3, dtype=np.int64))
    assert isinstance(svm, MaxMargin)
    assert svm.p.tolist() == [1, 0]

    # If p gives each optimal token at least half the weight, a positive margin counts at most fully, and a negative one
    # at least by half: this bounds the risk from below.
    line = np.arange(-500, 501) * 1e-3
    heads = np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2)
    margins = heads[np.linalg.norm(heads, axis=1) <= 0.5 + 1e-3] @ features.T
    kept = np.logaddexp(0.0, -np.where(margins > 0, margins, margins / 2)).sum(axis=1)
    # Between points of the grid, the risk changes by at most a Lipschitz constant times half a diagonal.
    between = 1e-3 * np.linalg.norm(features, axis=1).sum() / math.sqrt(2)
    given_up, v = best_head(np.where([[True], [False], [True]], features, 0.0), 0.5)
    assert given_up < kept.min() - between < best_head(features, 0.5)[0]
    # This prompt gives the second input's optimal token no weight, and attains the lower risk.
    p = 1e3 * np.array([0.1, 1.0])
    assert ((features @ p > 0) == [True, False, True]).all()
    s = np.exp(-np.logaddexp(0.0, -features @ p))
    assert math.isclose(float(np.logaddexp(0.0, -(features @ v) * s).sum()), given_up, rel_tol=1e-9)

    all_of_them = best_head(features, 5.0)[0]
    others = [
        best_head(np.where(np.array(chosen)[:, None], features, 0.0), 5.0)[0]
        for chosen in np.ndindex(2, 2, 2)
        if not all(chosen)
    ]
    assert all_of_them < 0.1 < min(others)


@pytest.mark.parametrize("scores", [1, 2, 3, 4, 10])
def test_assumption_c_on_figure_5_ends_at_a_score_of_three(scores: int) -> None:
    """For optimal tokens z_0 = (1, 1, C) and z_1 = (1, −1, 1), second tokens 0 and keys (1, ±1), Assumption C holds for
    C ≤ 2 and fails for C ≥ 3.

    The max-margin head of z_1 alone is z_1/3, and z_0·z_1/3 = C/3. So from C = 3 on input 0 has dual 0, and for C > 3
    its optimal token needs a weight of only 3/C for the same margin. At p = (x, y) the logits are x + y and x − y.
    """
    case = dataset_named(f"figure-5-c{scores}")
    proven = token_optimality(case)
    assert proven.holds is (True if scores <= 2 else None)
    z = np.array([[1.0, 1.0, scores], [1.0, -1.0, 1.0]])
    weight = 3 / scores + 1e-3 if scores > 3 else 1 - 1e-3
    logits = np.array([math.log(weight / (1 - weight)), 30.0])
    features = (1 / (1 + np.exp(-logits)))[:, None] * z

    def margin(two: np.ndarray) -> float:
        """Return the distance of the segment between two features from 0."""
        a, b = two
        share = np.clip(b @ (b - a) / ((b - a) @ (b - a)), 0.0, 1.0)
        return float(np.linalg.norm(share * a + (1 - share) * b))

    lost, mixed = margin(z) - margin(features), float(1 - 1 / (1 + np.exp(-logits.min())))
    if scores <= 2:
        assert lost >= proven.nu * mixed > 0
    else:
        assert lost < (1e-3 if scores == 3 else 1e-9) * mixed


def test_the_certificate_of_figure_5_is_that_found_by_hand() -> None:
    """For the score C = 2, compute the duals of the SVM of the head over the rationals, with features (1, 1, 2) and (1,
    −1, 1).
    """
    z = [[fmpq(x) for x in row] for row in ((1, 1, 2), (1, -1, 1))]
    gram = [[sum((a * b for a, b in zip(u, w, strict=True)), fmpq(0)) for w in z] for u in z]
    determinant = gram[0][0] * gram[1][1] - gram[0][1] * gram[1][0]
    duals = [(gram[1][1] - gram[0][1]) / determinant, (gram[0][0] - gram[0][1]) / determinant]
    assert all(x > 0 for x in duals)
    assert sum(duals, fmpq(0)) == fmpq(5, 14)  # this is ‖v_mm‖², so the label margin Γ is √2.8


def test_descent_holds_at_four_times_the_step_and_fails_at_five() -> None:
    """For keys ±1, scores ±1000 and the logistic loss, L(p − η∇L) ≤ L − (η/2)‖∇L‖² holds for η = 4/L_p and fails for
    5/L_p, where Lemma 6 allows 1/L_p.
    """
    p = np.linspace(-0.02, 0.02, 40_001)
    smoothness = 0.25 * 2e6 * 2 + 3 * math.sqrt(2e6) * 2  # L_p = M0‖γ‖²‖K‖² + 3 M1‖γ‖‖K‖² with M0 = 1/4, M1 = 1

    def risk(p: np.ndarray) -> np.ndarray:
        return np.logaddexp(0.0, -1000 * np.tanh(p))

    gradient = -1000 / np.cosh(p) ** 2 / (1 + np.exp(1000 * np.tanh(p)))
    for factor, held in ((4, True), (5, False)):
        eta = factor / smoothness
        room = risk(p) - eta / 2 * gradient**2 - risk(p - eta * gradient)
        assert (room >= -1e-9 * (1 + risk(p))).all() == held
