"""The flow from a start at which every optimal token leads by enough, followed to where its limit is visible.

References: *Max-Margin Token Selection in Attention Mechanism*, Theorem 2; :mod:`.flow_offset`; derivations in
:mod:`.descent_from_a_margin`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from jaxtyping import Float64

from reference_attention.floats import EPS
from reference_attention.training.flow import Flow
from theorems.core.claim import Claim, Form, at_least, undecided_claim
from theorems.core.claim_name import premises
from theorems.core.implementation import Implementation
from theorems.core.tolerances import tolerance
from theorems.curves.constraints import Constraints
from theorems.curves.followed_flow import FollowedFlow
from theorems.rounding.bounded import exact, value_of
from theorems.token_selection.global_paths.flow_offset import FlowOffset, own_bound
from theorems.token_selection.global_paths.margin_constants import MarginConstants

MARGIN_FLOW = tolerance(
    "margin-flow",
    "evaluations · √d (1e-12 ‖p‖ + atol) + 8 d eps ‖p‖; of a margin max‖g‖ times as much; + 16 eps of each summand",
    "each inequality holds along every piece of the flow from where the piece begins, and is summed over pieces: the"
    " solver's local errors, at most rtol‖p‖ + atol per coordinate and gradient, add; the rest is rounding",
)

FLOW_RELATIVE = 1e-12
"""Relative tolerance of the flow's solver: the offset from the ray is read off."""
NEARLY = 1e-2
"""E, how far log|coefficient of a row| may be from its limit where the offset is read off first."""

FLOW_CLAIMS = (
    "flow-is-the-one-asked-for",
    "flow-is-of-this-gradient",
    "flow-chords",
    "norm-diverges",
    "flow-margin-is-kept",
    "flow-turns",
    "flow-offset-is-kept",
)
"""The claims of :func:`flow_claims`."""


def flow_claims(
    constants: MarginConstants,
    under_test: Implementation,
    start: Float64[np.ndarray, "d"],
    rng: np.random.Generator,
) -> Iterator[Claim]:
    """Follow the flow from a start of margin κ + log(2(T−1)A) to norm 1e6‖p_mm‖, or as far as float64 resolves it."""
    problem, unit = constants.problem, constants.svm.norm
    followed = FollowedFlow.of(problem, under_test, start, unit, FLOW_RELATIVE, rng, "norm-diverges")
    yield from premises(followed)
    yield from followed.diverges()
    flow = followed.flow
    solver = followed.solver + 8 * problem.d * EPS * flow.norms
    margins = constants.margins(exact(flow.points))
    least = margins[0] - constants.kappa
    lost = value_of(constants.reach) * solver
    # The true flow from a recorded point keeps that point's margin less κ, and the start's but for the solver's errors.
    m, kappa = margins.value - margins.error, float(value_of(constants.kappa))
    later = np.maximum(m, m[0] - lost) - kappa
    # Rows that are a million times longer than the shortest lose their margins to the solver's tolerance far out.
    known = np.logical_and.accumulate(((lost <= 1) | (margins.value >= 8 * lost)) & (_shares(constants, later) > 0))
    if known.sum() < 2:
        return
    flow = replace(flow, points=flow.points[known], norms=flow.norms[known])
    margins, lost, solver, later = margins[known], lost[known], solver[known], later[known]
    kept = margins[1:].widened(lost[1:])
    yield at_least("flow-margin-is-kept", Form.LIMIT, kept, least, why=MARGIN_FLOW, points="recorded norm")
    yield _turns(constants, flow, later, solver / unit)
    offset = _offset_is_kept(constants, flow, later, solver / unit)
    if known.all() or not offset.undecided:
        yield offset


def _turns(
    constants: MarginConstants,
    flow: Flow,
    later: Float64[np.ndarray, "r"],
    solver: Float64[np.ndarray, "r"],
) -> Claim:
    """u(k) − u(0) ≥ Σ_j (1 − Aq_j)(F_j(ρ_{j+1}) − F_j(ρ_j)), F_j(ρ) = ρ − K_j log(ρ + K_j), in units of ‖p_mm‖.

    Args:
        later: what margins are at least from each recorded point on.
    """
    rho, u = flow.norms / constants.svm.norm, flow.points @ constants.svm.p / constants.svm.norm**2
    lag = float(value_of(constants.spread)) + np.log1p(_missed(constants, later[:-1]))
    bent = lag * np.log((rho[1:] + lag) / (rho[:-1] + lag))
    least = u[0] + np.cumsum(_shares(constants, later[:-1]) * (np.diff(rho) - bent))
    rounding = solver[1:] + 16 * EPS * np.cumsum(rho[1:] + np.abs(bent) + lag)
    return at_least(
        "flow-turns",
        Form.LIMIT,
        u[1:],
        least,
        rounding=rounding,
        why=MARGIN_FLOW,
        scale=rho[1:],
        points="recorded norm",
    )


def _missed(constants: MarginConstants, later: Float64[np.ndarray, "r"]) -> Float64[np.ndarray, "r"]:
    """q = (T − 1) e^{−m}."""
    with np.errstate(over="ignore"):
        return np.asarray((constants.problem.T - 1) * np.exp(-later))


def _shares(constants: MarginConstants, later: Float64[np.ndarray, "r"]) -> Float64[np.ndarray, "r"]:
    """1 − Aq."""
    return np.asarray(1 - float(value_of(constants.widest)) * _missed(constants, later))


def _offset_is_kept(
    constants: MarginConstants,
    flow: Flow,
    later: Float64[np.ndarray, "r"],
    solver: Float64[np.ndarray, "r"],
) -> Claim:
    """|r| ≤ √(|r_b|² + e^E growth + Σ 2E_k(e^{E_k} − 1) Δlog t) at all later recorded points."""
    offsets = FlowOffset.of(Constraints.of(constants.problem, constants.svm), constants.svm)
    changed = _changed(constants, later)
    begins = np.flatnonzero(changed <= NEARLY)
    if not offsets.solved or len(begins) == 0 or begins[0] + 1 >= len(changed):
        why = "Newton's method for the dual weights did not converge" if not offsets.solved else "margins stay small"
        return undecided_claim("flow-offset-is-kept", why, Form.SHARP)
    b = int(begins[0])
    p, rho = flow.points[b:] / constants.svm.norm, flow.norms[b:] / constants.svm.norm
    q = offsets.q + offsets.free(p[0])
    size = np.linalg.norm(offsets.across(p - q), axis=1)
    bounds = np.array([_bound(offsets, p, rho, changed[b:], q, k) for k in range(1, len(rho))])
    return at_least(
        "flow-offset-is-kept",
        Form.SHARP,
        bounds,
        size[1:],
        rounding=solver[b + 1 :] + 8 * constants.problem.d * EPS * rho[1:],
        why=MARGIN_FLOW,
        scale=np.maximum(size[1:], 1.0),
        points="recorded norm",
    )


def _bound(
    offsets: FlowOffset,
    p: Float64[np.ndarray, "r d"],
    rho: Float64[np.ndarray, "r"],
    changed: Float64[np.ndarray, "r"],
    q: Float64[np.ndarray, "d"],
    k: int,
) -> float:
    """|r| at ρ_k; log t = ⟨p − q − r, p̄_mm⟩ is known to |r|, which enters its own bound."""
    begin, shift = float((p[0] - q) @ offsets.direction), float(q @ offsets.direction)
    first, off = float(np.sum(offsets.across(p[0] - q) ** 2)), offsets.residual(q)
    grown = offsets.growth(q, begin)
    rates = 2 * changed[:k] * np.expm1(changed[:k])

    def squared(bound: float) -> float:
        times = np.maximum(rho[1 : k + 1] - p[:k] @ offsets.direction + 2 * bound, 0.0)
        end = float(rho[k]) - shift + bound
        growth = math.exp(changed[0]) * grown(end) + 2 * bound * off * max(end - begin, 0.0)
        return first + growth + float(rates @ times)

    return min(own_bound(squared, first), float(rho[k]) + float(np.linalg.norm(offsets.across(q))))


def _changed(constants: MarginConstants, later: Float64[np.ndarray, "r"]) -> Float64[np.ndarray, "r"]:
    """E: by how much the logarithm of a row's coefficient may differ from log c_j + log e^{−g_j·p} where margins are
    at least ``later``; ∞ where it may be negative.
    """
    problem, loss = constants.problem, constants.problem.loss
    top, gaps = problem.scores.max(axis=1), problem.gaps()
    widest, least = gaps.max(axis=1), np.where(constants.others, gaps, np.inf).min(axis=1)
    q = _missed(constants, later)
    found = np.full(len(q), np.inf)
    for k, missed in enumerate(q.tolist()):
        each = []
        for a, wide, small in zip(top.tolist(), widest.tolist(), least.tolist(), strict=True):
            share, low = missed * wide / small, a - min(missed, 1.0) * wide
            slopes = loss.log_bound(low, a) - loss.log_floor(low, a)
            each.append(missed - math.log1p(-share) + slopes if share < 1 else math.inf)
        found[k] = max(each)
    return found * (1 + 16 * EPS)
