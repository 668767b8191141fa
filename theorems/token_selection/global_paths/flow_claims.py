"""The limit and sharp claims of Theorem 2, along the gradient flow.

References: *Max-Margin Token Selection in Attention Mechanism*, Theorem 2; :mod:`.flow_offset`.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator

import numpy as np
from jaxtyping import Float64
from numpy.linalg import norm

from generators.case import Case
from reference_attention.floats import EPS
from reference_attention.problem import Problem
from reference_attention.svm.max_margin import MaxMargin
from reference_attention.training.descent import Stop
from reference_attention.training.flow import RELATIVE, Flow
from theorems.core.claim import Claim, Form, Undecided, Verdict, at_least, undecided
from theorems.core.implementation import Implementation
from theorems.core.tolerances import EXACT, tolerance
from theorems.rounding.attention_at import AttentionAt
from theorems.rounding.bounded import value_of
from theorems.token_selection.global_paths.flow_chords import asked_for, chords
from theorems.token_selection.global_paths.flow_offset import FlowOffset
from theorems.token_selection.global_paths.growth_bounds import reach
from theorems.token_selection.global_paths.path_constants import Constraints

GRADIENT_FLOW = tolerance(
    "gradient-flow",
    "evaluations · √d (1e-12 ‖p‖ + max(1e-10/κ, 64 eps ‖p_end‖)) + 8 d eps ‖p‖",
    "the solver keeps its local error below rtol‖p‖ + atol per coordinate and step; for n = 1 the flow is the"
    " gradient flow of the convex Σ e^{−g_j·p}, which amplifies no error, and ⟨p, p_mm⟩ rises along every flow, so"
    " errors only add; the last term is the rounding of a point of that norm; rtol is 1e-9 for n > 1",
)

FLOW_NORMS = (1e6, 1e5, 1e4)
"""Norms to which the flow is followed, in units of ‖p_mm‖ for n = 1 and of 1/(scale of the keys) for n > 1: the first
one at which float64 still resolves it. Where rows differ a thousandfold and more, the logits of the longest lose their
digits.
"""
FAR, OPPOSITE = 1e3, 10.0
"""Norms of a far start, in units of 1/(scale of the keys), and of an opposite one, in units of ‖p_mm‖."""
BEYOND = 100.0
"""The flow is followed at least to so many times the norm of its start."""
FLOW_RELATIVE = 1e-12
"""Relative tolerance of its solver for n = 1, where the offset from the ray is read off."""


def flow_start(case: Case, svm: MaxMargin, rng: np.random.Generator) -> Float64[np.ndarray, "d"]:
    """Where the flow starts: the case's own start, or one near the origin, far from it, or opposite to p_mm."""
    if case.start is not None:
        return case.start
    near = rng.normal(size=svm.p.size) / case.problem.key_scale
    return [near, near, FAR * near, -OPPOSITE * svm.p][int(rng.integers(4))]


def flow_claims(
    problem: Problem,
    under_test: Implementation,
    svm: MaxMargin,
    start: Float64[np.ndarray, "d"],
    rng: np.random.Generator,
) -> Iterator[Claim]:
    """Follow the flow from ``start`` and check its norm, and for n = 1 its direction and its offset."""
    # The direction is seen in units of p_mm; that the norm diverges, in those of the keys.
    single = problem.n == 1
    unit = svm.norm if single else 1 / problem.key_scale
    relative = FLOW_RELATIVE if single else RELATIVE
    flow = yield from followed(problem, under_test, start, unit, relative, rng)
    if flow is None:
        return
    solver = flow.evaluations * math.sqrt(problem.d) * (relative * flow.norms + flow.absolute)
    w = flow.points @ svm.p
    yield at_least(
        "arc-climbs",
        Form.LIMIT,
        w[1:] - w[0],
        flow.arc_length[1:] / value_of(reach(problem)),
        rounding=(svm.norm * solver + 16 * EPS * np.abs(w))[1:],
        why=GRADIENT_FLOW,
        scale=svm.norm * (flow.norms + flow.arc_length)[1:],
        points="recorded norm",
    )
    if single:
        yield from _flow_direction(problem, svm, flow, solver / svm.norm)


def followed(
    problem: Problem,
    under_test: Implementation,
    start: Float64[np.ndarray, "d"],
    unit: float,
    relative: float,
    rng: np.random.Generator,
) -> Generator[Claim, None, Flow | None]:
    """The flow to the largest of :data:`FLOW_NORMS` (in this unit) that float64 resolves, once it is claimed to be one.

    None where a claim fails, or none of it could be decided.

    Raises:
        Undecided: it was not followed.
    """
    begin = float(np.linalg.norm(start))
    for size in FLOW_NORMS:
        end = max(size * unit, BEYOND * begin)
        flow = under_test.gradient_flow(problem, start, norm=end, relative=relative)
        if flow.stop is not Stop.FAILED:
            break
    if flow.stop is Stop.FAILED:
        why = f"the flow was not followed: {flow.reason}"
        raise Undecided("norm-diverges", why, Form.LIMIT)
    asked = asked_for(flow, start, end)
    yield asked
    if asked.verdict is Verdict.FALSIFIED:
        return None
    tangent = _is_a_flow(problem, under_test, flow)
    yield tangent
    if tangent.undecided:
        return None
    yield chords(problem, flow, rng)
    if flow.stop is Stop.STATIONARY and not _vanishes(problem, flow.final):
        why = f"the flow solver stopped at ‖p‖ = {flow.norms[-1]:.6g}, where the gradient does not vanish"
        raise Undecided("norm-diverges", why, Form.LIMIT)
    reached = f"‖p‖ = {flow.norms[-1]:.6g} after an arc of {flow.arc_length[-1]:.6g}, {flow.stop.value}"
    yield Claim("norm-diverges", Form.LIMIT, 0.0 if flow.reached else -1.0, 0.0, EXACT, reached)
    return flow if flow.reached else None


def _is_a_flow(problem: Problem, under_test: Implementation, flow: Flow) -> Claim:
    """The gradient under test is tangent to the curve at every recorded point, so the curve is its flow too.

    The curve itself is integrated with the suite's gradient and its Jacobian: without one, or with a gradient that
    is rounding noise, a stiff solver takes minutes.
    """
    at = AttentionAt(problem, flow.points)
    mine = at.gradient
    if not np.isfinite(mine).all():
        why = "the rounding error of log|ℓ'| is too large: no digit of the gradient's direction is left in float64"
        return undecided("flow-is-of-this-gradient", why, Form.EFFECTIVE)
    theirs = at.gradient_of(under_test, "flow-is-of-this-gradient")
    apart = theirs / norm(theirs, axis=1, keepdims=True) - mine / norm(mine, axis=1, keepdims=True)
    return at_least(
        "flow-is-of-this-gradient", Form.EFFECTIVE, 0.0, norm(apart, axis=1), scale=1.0, points="recorded norm"
    )


def _vanishes(problem: Problem, p: Float64[np.ndarray, "d"]) -> bool:
    """Whether the gradient is zero at p to the rounding of its terms."""
    return not (AttentionAt(problem, p[None]).gradient != 0).any()


def _flow_direction(problem: Problem, svm: MaxMargin, flow: Flow, solver: Float64[np.ndarray, "r"]) -> Iterator[Claim]:
    offsets = FlowOffset.of(Constraints.of(problem, svm), svm)
    if not offsets.solved:
        why = "Newton's method for the dual weights did not converge"
        raise Undecided("flow-correlation", why, Form.LIMIT)
    p = flow.points / svm.norm
    rho = flow.norms / svm.norm
    z = offsets.across(p)
    size = np.linalg.norm(z, axis=1)
    bound = np.array([offsets.from_start(p[0], r) for r in rho[1:]])
    yield at_least(
        "flow-correlation",
        Form.LIMIT,
        bound,
        size[1:],
        rounding=solver[1:],
        why=GRADIENT_FLOW,
        scale=np.maximum(size[1:], 1.0),
        points="recorded norm",
    )
    late = np.flatnonzero(rho >= max(100.0, 10 * rho[0]))
    checkpoints = [offsets.q + offsets.free(p[k]) for k in late]
    remaining = np.array([offsets.after(p[k], rho[k + 1], q) for k, q in zip(late[:-1], checkpoints, strict=False)])
    moved = np.array(
        [np.linalg.norm(z[k + 1] - offsets.across(q)) for k, q in zip(late[:-1], checkpoints, strict=False)]
    )
    after = solver[late[1:]] + 8 * problem.d * EPS * rho[late[1:]]
    yield at_least(
        "flow-offset-is-kept",
        Form.SHARP,
        remaining,
        moved,
        rounding=after,
        why=GRADIENT_FLOW,
        scale=np.maximum(size[late[1:]], 1.0),
        points="recorded norm",
    )
    yield at_least(
        "flow-offset-closed-form",
        Form.SHARP,
        np.minimum(offsets.contracted(p), rho + float(np.linalg.norm(offsets.q)))[late],
        np.linalg.norm(offsets.inside(p[late] - offsets.q), axis=1),
        rounding=solver[late] + 8 * problem.d * EPS * rho[late],
        why=GRADIENT_FLOW,
        scale=np.maximum(size[late], 1.0),
        points="recorded norm",
    )
