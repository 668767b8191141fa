"""Theorem 6 for the nuclear norm, for choices α whose solution W_⋆ of least nuclear norm is proven to be unique.

References: *Transformers as Support Vector Machines*, Theorem 6.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Float64

from generators.case import Case
from reference_attention.floats import EPS
from reference_attention.paths.nuclear_offsets import NuclearOffsets
from reference_attention.paths.nuclear_path import log_costs_of, nuclear_path
from reference_attention.svm.max_margin import Infeasible
from reference_attention.svm.nuclear_max_margin import nuclear_max_margin
from theorems.bounded import exact, value_of
from theorems.core.att_svm import end_as_infeasible
from theorems.core.claim import Claim, Ended, Form, NotANumber, Refuted, Verdict, at_least, section
from theorems.core.claim_name import premise, premises, sharper, stated_claim
from theorems.core.implementation import Implementation
from theorems.core.nuclear_certificate import NuclearCertificate, nuclear_claim
from theorems.core.tolerances import tolerance
from theorems.curves.missing_points import missing_claim
from theorems.rounding.attention_at import Numbers
from theorems.transformers_as_svms.curves.nuclear_bounds import NUCLEAR_ROUNDING, NuclearBounds
from theorems.transformers_as_svms.curves.nuclear_limit import corrections, offset_in_closed_form
from theorems.transformers_as_svms.curves.nuclear_local_bounds import NuclearLocalBounds

NUCLEAR_LOCAL_VALUE = tolerance(
    "nuclear-local-path-value",
    "the error bounds of both log-excesses,"
    " 64 eps (1 + |log excess| + κR), and 2T e^{−(ρ − κ_α)} + Σ_harmful e^{−ρ(m − 1)/2}",
    "the path minimises Σ c_j e^{−h_j} over tokens that score less than α; the risk differs from it by relative terms:"
    " the softmax weights of tokens that are not selected, and the contribution of harmful tokens",
)

LOCAL = "W_⋆ is proven the only solution, its tight constraints belong to tokens that score less, and float64 resolves"
ON_PATH = f"{LOCAL} a radius at which the path lies in the cone"

SVM_IS_OPTIMAL = premise("nuclear-svm-is-optimal")
MARGIN = sharper("nuclear-sublevel-margin", when=f"{LOCAL} its cone")
FACE = sharper("nuclear-sublevel-face-distance", when=f"{LOCAL} its cone")
SOLUTION = sharper("nuclear-sublevel-solution-distance", when=f"{LOCAL} its cone")
IN_CONE = premise("nuclear-path-is-in-the-cone", when=ON_PATH)
NO_HIGHER = premise("nuclear-path-is-no-higher-than-its-limit", when=ON_PATH)
PATH_MARGIN = sharper("nuclear-path-margin", when=ON_PATH)
TURNS = stated_claim("nuclear-path-turns", when=ON_PATH)

NUCLEAR_LOCAL_CLAIMS = (SVM_IS_OPTIMAL, MARGIN, FACE, SOLUTION, IN_CONE, NO_HIGHER, PATH_MARGIN, TURNS)
"""The names of the claims that :func:`nuclear_local_claims` yields."""

SUBLEVEL = (1.05, 2.0, 30.0, 1e3, 1e6)
"""The radii ρ of the sublevel sets, in units of the larger of κ_α and R0/‖W_⋆‖_F."""
POINTS = 60
"""The number of points of the cone that are checked per sublevel set."""
PATH_RADII = (1e2, 1e4, 1e6)
"""The radii ρ of the path."""


@section
def nuclear_local_claims(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Yield the claims of Theorem 6 for the nuclear norm; :func:`.local_path.tsvm_local_path` derives them."""
    data, problem, alpha = case.queried, case.problem, case.chosen_tokens
    assert data is not None
    solution = under_test[nuclear_max_margin](data.keys, alpha)
    if isinstance(solution, Infeasible):
        end_as_infeasible(problem, alpha, solution, SVM_IS_OPTIMAL, svm="ATT-SVM⋆")
    certificate = NuclearCertificate(data, alpha, solution)
    optimal = nuclear_claim(certificate, SVM_IS_OPTIMAL)
    yield from premises(optimal)
    if optimal.verdict is not Verdict.UPHELD:
        raise Ended(optimal.name)
    local = NuclearLocalBounds(NuclearBounds(problem, certificate), under_test)
    if solution.exact is None or not local.is_locally_optimal or not local.is_resolvable:
        return
    begin = max(float(value_of(local.kappa)), local.first)
    yield from _sublevel(local, begin, case.rng())
    yield from _on_the_path(local, begin)


def _sublevel(local: NuclearLocalBounds, begin: float, rng: np.random.Generator) -> Iterator[Claim]:
    """Yield the claims on margins and distances at points of the cone."""
    rho = np.repeat([begin * factor for factor in SUBLEVEL if begin * factor < local.last], POINTS)
    W = local.points(rng, rho, begin)
    least = least_margin(local, W, rho, MARGIN)
    inside = (least.value - least.error > 0) & (value_of(local.sizes(W)[0]) >= local.first)
    yield from _distances(local, W[inside], rho[inside], least[inside], (MARGIN, FACE, SOLUTION), Form.EFFECTIVE)


def _distances(
    local: NuclearLocalBounds,
    W: Float64[np.ndarray, "m d e"],
    rho: Float64[np.ndarray, "m"],
    least: Numbers,
    names: tuple[str, str, str],
    form: Form,
) -> Iterator[Claim]:
    """Claim that the margins of W are at least ``least``, and bounds on the distances of W from the face F and ρW_⋆."""
    bounds, options = local.bounds, {"points": "point of the cone"}
    R, low = rho * bounds.most, least.value - least.error
    e = R - bounds.least * low
    yield at_least(names[0], Form.EFFECTIVE, np.min(bounds.margins(W), axis=1), least, **options)
    round_off: dict[str, Any] = {"rounding": bounds.rounding(R), "why": NUCLEAR_ROUNDING, "scale": R, **options}
    yield at_least(names[1], Form.EFFECTIVE, bounds.from_face(R, e), bounds.face_distance(W), **round_off)
    distance = np.linalg.norm(W - rho[:, None, None] * bounds.svm.W, axis=(1, 2))
    yield at_least(names[2], form, bounds.from_solution(R, e, rho - low), distance, **round_off)


def _on_the_path(local: NuclearLocalBounds, begin: float) -> Iterator[Claim]:
    """Yield the claims on the path under test, at the radii where ρW_⋆ plus the predicted offset is in the cone."""
    bounds, problem = local.bounds, local.problem
    svm, P = bounds.svm, float(np.linalg.norm(bounds.svm.W))
    log_costs = log_costs_of(problem, svm)
    offset = offset_in_closed_form(bounds, log_costs).value
    system = NuclearOffsets.of(svm, log_costs)

    def lies_within(rho: float) -> bool:
        """Return whether ρW_⋆ plus the limit offset, corrected by Newton steps, lies well within the cone."""
        first, second = corrections(system, rho)
        apart = float(np.linalg.norm(offset)) + first + 2 * second
        return bool(second <= max(first / 4, EPS * rho * P) and 2 * apart < rho * P * np.sqrt(local.mu))

    radii = np.array([rho for rho in PATH_RADII if 1.5 * begin < rho < local.last and lies_within(rho)])
    if radii.size == 0:
        return
    path = local.under_test[nuclear_path](problem, svm, radii)
    W = path.K @ np.swapaxes(path.Q, 1, 2)
    if W.shape != (len(radii), *svm.W.shape) or not np.isfinite(W[[not why for why in path.reasons]]).all():
        raise NotANumber(IN_CONE, "the path has no finite point at each radius", Form.EXACT)
    if not np.array_equal(path.rho, radii) or len(path.reasons) != len(radii):
        raise Refuted(IN_CONE, f"the path has the radii ρ = {path.rho}, but {radii} were requested", Form.EXACT)
    other = local.under_test.replaces(nuclear_path)
    reference = (lambda: nuclear_path(problem, svm, radii).reasons) if other else None
    if missing := missing_claim(IN_CONE, path.reasons, reference):
        yield missing
    reached = np.array([not why for why in path.reasons])
    if not reached.any():
        return
    W, radii = W[reached], radii[reached]
    size, nu = local.sizes(W)
    norms = np.linalg.svd(W, compute_uv=False).sum(axis=1) / bounds.most
    room = 64 * problem.d * EPS
    slacks = np.stack([local.mu * (1 + 1e-6) + room - nu, exact(radii * (1 + room) - norms), size - local.first])
    scale = np.stack([np.full(len(radii), local.mu), radii, radii])
    yield at_least(IN_CONE, Form.EXACT, slacks, 0.0, scale=scale, points="radius")

    # Compare with ρW_⋆ and ρW_⋆ + o; the latter is shrunk if its norm exceeds the radius of the ball.
    ray = radii[:, None, None] * svm.W
    beside = ray + offset
    beside *= np.minimum(1.0, radii * bounds.most / np.linalg.svd(beside, compute_uv=False).sum(axis=1))[:, None, None]
    mine, theirs = (
        local.log_excess(W, NO_HIGHER),
        [local.log_excess(x, NO_HIGHER).reshape(1, -1) for x in (ray, beside)],
    )
    noise = 64 * EPS * (1 + np.abs(mine.value) + problem.key_scale * radii * P)
    harm = np.exp(-radii[:, None] * local.beyond[~local.good] / 2).sum(axis=1)
    noise += 2 * problem.T * np.exp(-np.maximum(radii - float(value_of(local.kappa)), 0.0)) + harm
    yield at_least(
        NO_HIGHER,
        Form.LIMIT,
        np.concatenate(theirs),
        mine.widen(noise),
        scale=1.0,
        why=NUCLEAR_LOCAL_VALUE,
        points="radius",
    )
    least = least_margin(local, W, radii, PATH_MARGIN)
    for claim in _distances(local, W, radii, least, (PATH_MARGIN, FACE, TURNS), Form.LIMIT):
        if claim.name != FACE:
            yield claim


def least_margin(
    local: NuclearLocalBounds, W: Float64[np.ndarray, "m d e"], rho: Float64[np.ndarray, "m"], claim: str
) -> Numbers:
    """Return the lower bound ρ' − κ_α − y of the margins of W.

    ρ' ≥ ρ is the least margin of ρW_⋆, and y ≥ 0 is the log-excess log n(L − L_α) at W minus that at ρW_⋆. κ_α is the
    constant ``kappa`` of ``local``.
    """
    radii, radius_index = np.unique(rho, return_inverse=True)
    edge = radii[:, None, None] * local.bounds.svm.W
    over = np.maximum(local.log_excess(W, claim) - local.log_excess(edge, claim)[radius_index], 0.0)
    return np.min(local.bounds.margins(edge), axis=1)[radius_index] - over - local.kappa
