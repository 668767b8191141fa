"""Theorem 4 without distinct scores or general position, for locally optimal directions, or with a squared loss.

Notation: p̄(R) is the local regularization path: the prompt of least risk in a cone around q with norm at most R. q̄ is
q/‖q‖, and θ(q) is the directional margin of q.

References: *Max-Margin Token Selection in Attention Mechanism*, Theorem 4; Appendix B.5.2, Theorem 7.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from types import MappingProxyType

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy
from jaxtyping import Float64

from generators.case import Case
from generators.numbers import Style, entries
from generators.problems import cases
from reference_attention.directions import direction
from reference_attention.loss import Loss
from reference_attention.losses import loss_named
from reference_attention.paths.local_path import local_path
from reference_attention.problem import Problem
from theorems.core.claim import Claim, Form
from theorems.core.implementation import Implementation
from theorems.without.flow_claims import LIMIT_FOLLOWED, NORM
from theorems.without.signed_flow import signed_gradient
from theorems.without.weakening import Weakening

SHORT, LONG = (8.0, 64.0), (1e2, 1e4, NORM)
"""Radii R of the path, in units of :func:`_unit`: SHORT while a hunt searches, LONG to judge the conclusion."""


def _ratio(case: Case, radii: tuple[float, ...]) -> tuple[Float64[np.ndarray, "r"], Float64[np.ndarray, "r"]]:
    """Return ‖p̄(R)/R − q̄‖ and ‖p̄(R)‖/R for the local path (symbols: see the module), at the given radii R.

    The radii are in units of :func:`_unit`.
    """
    problem = case.problem
    at_q = direction(problem.keys, case.arrays["q"])
    unit = _unit(case)
    norms = np.array([x * unit for x in radii])
    path = local_path(
        problem,
        at_q.unit,
        at_q.best(problem.scores),
        norms,
        mu=float(case.arrays["cone_mu"]),
        radius=float(case.arrays["cone_radius"]),
        seed=case.seed,
        starts=norms[:, None] * at_q.unit,
        gradient=partial(signed_gradient, problem.keys, problem.scores, problem.loss),
    )
    return np.linalg.norm(path.points / path.norms[:, None] - at_q.unit, axis=1), path.sizes / path.norms


def _unit(case: Case) -> float:
    """Return the unit of radii: 1/θ(q), with q's directional margin θ(q), or 1/``key_scale`` if θ(q) is 0 or ∞.

    The unit is at least the cone's radius; ``key_scale`` is about the largest |entry| of the keys.
    """
    margin = direction(case.problem.keys, case.arrays["q"]).margin
    unit = 1 / margin if 0 < margin < math.inf else 1 / case.problem.key_scale
    return max(unit, float(case.arrays["cone_radius"]))


def _stays_away(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Claim that the local path's direction p̄(R)/R (symbols: see the module) does not tend to q̄ as R grows.

    At the largest radius, R = ρ units with ρ = 10⁶, the distance from q̄ must exceed ρ^{−1/2}, or must not have halved
    since the smallest radius.
    """
    apart, share = _ratio(case, LONG)
    rho = LONG[-1]
    distances = (
        f"‖p̄(R)/R − q̄‖ = {', '.join(f'{x:.3g}' for x in apart)} at R = {', '.join(f'{x:g}' for x in LONG)} units"
    )
    falling = apart[-1] <= apart[0] / 2 or apart[-1] * math.sqrt(rho) < math.sqrt(LONG[0] / rho)
    slack = float(apart[-1]) * math.sqrt(rho) - 1 if falling else float(apart[-1])
    yield Claim(
        "path-stays-away-from-q",
        Form.LIMIT,
        slack,
        rho**-0.5,
        LIMIT_FOLLOWED,
        f"{distances}, ‖p̄(R)‖ = {share[-1]:.6g} R",
    )


def _towards_q(case: Case) -> float:
    """Return 1 − ρ^{1/2}‖p̄(R)/R − q̄‖ at the end of a short path, R = ρ units: positive if the path is close to q̄.

    Return −1 unless the cone around q has a width μ in (0, ½] and a radius of at least ½/``key_scale`` (:func:`_unit`).
    """
    if not (
        0 < float(case.arrays["cone_mu"]) <= 0.5 and float(case.arrays["cone_radius"]) >= 0.5 / case.problem.key_scale
    ):
        return -1.0
    apart, _ = _ratio(case, SHORT)
    return 1 - float(apart[-1]) * math.sqrt(SHORT[-1])


@st.composite
def _directed_cases(
    draw: DrawFn, base: SearchStrategy[Case], *, distinct: bool = True, loss: Loss | None = None
) -> Case:
    """Draw a case from ``base`` and add a direction q of small integers and a wide cone around q.

    If ``distinct`` is true, new scores from 0 to 4 are drawn, distinct within each input. If ``loss`` is given, it
    replaces the loss of the case.
    """
    case = draw(base)
    problem = case.problem
    scores = problem.scores
    if distinct:
        row = st.permutations(range(5)).map(lambda values: values[: problem.T])
        scores = np.array(draw(st.lists(row, min_size=problem.n, max_size=problem.n)), dtype=np.float64)
    q = draw(entries((problem.d,), Style.INTEGERS).filter(np.any))
    arrays = {"q": q, "cone_mu": np.array(0.5), "cone_radius": np.array(1.0 / problem.key_scale)}
    return case.replace(problem=Problem(problem.keys, scores, loss or problem.loss), arrays=MappingProxyType(arrays))


THEOREM_4 = Weakening("theorem-4", _stays_away, "if q is no locally optimal direction, p̄(R)/R does not tend to q")
equal_scores = THEOREM_4.without(
    "distinct-scores",
    "Let a directional neighbour have the same score as the selected token: weight on it costs nothing. So q is not"
    " locally optimal (Definition 2 asks for a strictly lower score). But the path goes in the direction in which the"
    " other tokens lose weight fastest, and this may be q.",
    cases=_directed_cases(
        cases(assumptions=("well-behaved-loss", "general-position"), n=(1, 2), tokens=(2, 3), d=(1, 2), plain=True),
        distinct=False,
    ),
    violation=_towards_q,
)
special_position = THEOREM_4.without(
    "general-position",
    "Let directional neighbours have dependent rows, so that no perturbation of q separates them. One neighbour scores"
    " higher, so q is not locally optimal, but it only gains weight together with another that scores lower by more."
    " Together they raise the risk, and the path gives neither of them weight, along q.",
    cases=_directed_cases(cases(assumptions=("well-behaved-loss",), n=(1, 2), tokens=(2, 3), d=(1, 2), plain=True)),
    violation=_towards_q,
)
locally_optimal_direction = Weakening("theorem-4", _stays_away, "p̄(R)/R does not tend to q").without(
    "not-locally-optimal-direction",
    "Let q be the max-margin direction of locally optimal tokens: then the local path converges to q. In a narrow cone"
    " around q the risk is larger than that of selecting these tokens, and decreases fastest along q, where the"
    " smallest margin is largest.",
    cases=_directed_cases(
        cases(assumptions=("well-behaved-loss", "general-position"), n=(1, 2), tokens=2, d=(1, 2), plain=True)
    ),
    violation=_towards_q,
)


squared_loss = THEOREM_4.without(
    "well-behaved-loss",
    "Let the loss increase for large scores, like (1 − u)²/2: a higher score can then have a larger loss. A neighbour"
    " that scores higher, so that q is not locally optimal, then raises the risk, and the path along q gives it no"
    " weight.",
    cases=_directed_cases(
        cases(assumptions=("general-position",), n=1, tokens=2, d=(1, 2), plain=True),
        loss=loss_named("squared"),
    ),
    violation=_towards_q,
)
