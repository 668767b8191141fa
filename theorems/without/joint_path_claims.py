"""The paper's conclusions about the joint regularization path (v_r, p_R), followed to RΘ = 10⁶, Θ = 1/‖p_mm‖.

Notation: the path at radii r and R is the pair of a head v_r with norm at most r and a prompt p_R with norm at most R
that has the least logistic risk. v_mm is the max-margin head of the chosen tokens α, v̄_mm = v_mm/‖v_mm‖. Supports are
the inputs with the smallest label margin Γ = 1/‖v_mm‖; p_relax solves ATT-SVM(α) with the margin 1 required at supports
and the margin 0 at other inputs.

This module uses neither Assumption C nor a schedule of radii nor, unless it says so, that ATT-SVM(α) is feasible.

References: *Max-Margin Token Selection in Attention Mechanism*, Section 3, Theorems 5 and 6;
:mod:`reference_attention.paths.joint_path`.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from jaxtyping import Float64
from scipy.optimize import brentq

from generators.case import Case
from reference_attention.paths.joint_minimisers import Pair, follow_from
from reference_attention.paths.joint_path import Schedule, prompt_at
from reference_attention.paths.joint_risk import Joint, chosen_rows, excess_gradient, joint_of_chosen
from reference_attention.svm.label_svm import label_svm, relaxed_max_margin
from reference_attention.svm.max_margin import Infeasible, MaxMargin, max_margin
from theorems.core.claim import Claim, Form, Verdict
from theorems.without.flow_claims import EARLIER, LIMIT_FOLLOWED, NORM

TURNS = 4
"""Number of times that the risk is minimised over head and prompt in turn if a support has dual 0 in the head's SVM.

The head then depends on the prompt only through a term r e^{−RΘ} (symbols: see the module), so that few turns
suffice."""


def joint_of(case: Case) -> Joint | None:
    """Return the joint problem of a case, with the max-margin head v_mm; None without v_mm or without tokens."""
    data = case.dataset
    return None if data is None else joint_of_chosen(data.signed_tokens, case.problem.keys, case.chosen_tokens)


def selects_best(joint: Joint) -> bool:
    """Check that α has a strictly larger label margin than every other selection.

    If so, the minimisers of the joint risk select α, if any prompt does: for each head the label margin is linear in
    the softmax weights, so that mixed features have no larger label margin than the best selection.
    """
    n, T = joint.others.shape
    for code in np.ndindex(*([T] * n)):
        if tuple(joint.alpha) != code:
            other = label_svm(chosen_rows(joint.tokens, np.array(code)))
            if not isinstance(other, Infeasible) and not other.margin < joint.svm.margin * (1 - 2.0**-40):
                return False
    return True


def separator_of(joint: Joint) -> MaxMargin | None:
    """Return the solution p_mm(α) of ATT-SVM(α); None if it does not exist."""
    solution = max_margin(joint.keys, joint.alpha)
    return None if isinstance(solution, Infeasible) else solution


def relaxed_solution(joint: Joint) -> MaxMargin | None:
    """Return p_relax, the solution of ATT-SVM(α) with margin 1 required at supports only; None without a solution."""
    solution = relaxed_max_margin(joint.keys, joint.alpha, joint.svm.support)
    return None if isinstance(solution, Infeasible) else solution


def follow_joint_path(joint: Joint, schedule: Schedule, radii: tuple[float, ...], unit: float, seed: int) -> list[Pair]:
    """Return, for each R, the pair of head and prompt with the least risk among those reached from a few starts.

    R is an entry of ``radii`` times ``unit``. ``schedule`` gives the logarithm of the head's radius r for each R.
    """
    separator = separator_of(joint)
    first = np.ones(joint.keys.shape[2]) if separator is None else separator.p
    paths = follow_from(joint, schedule, radii, unit, first, seed)
    weak = joint.svm.support & (joint.svm.duals <= 0)
    if weak.any() and joint.tokens.shape[2] == 2:
        paths = [[_with_weak_supports(x) for x in path] for path in paths]
    return [min(pairs, key=lambda x: x.rank) for pairs in zip(*paths, strict=True)]


def _with_weak_supports(pair: Pair) -> Pair:
    """Minimise the risk over head and prompt in turn; compute the head's component orthogonal to v̄_mm in logarithms.

    A support with signed token z and dual variable 0 pushes the head r v̄_mm sideways, by w, until e^{−w·z} is of the
    order of |w|/r; both numbers are far below the relative precision of floats.
    """
    w, p = pair.w, pair.p
    for _ in range(TURNS):
        w = _head_beside(pair.joint, pair.log_r, w)
        p = prompt_at(pair.joint, pair.log_r, pair.R, w, p)
    return replace(pair, w=w, p=p)


def _head_beside(joint: Joint, log_r: float, w: Float64[np.ndarray, "2"]) -> Float64[np.ndarray, "2"]:
    """Return the w that minimises the risk of the head r v̄_mm + w with norm r, for d = 2.

    All softmax weight is on the tokens α. w = y b − (y²/2r) v̄_mm with a unit vector b ⊥ v̄_mm and a number y. Let z_i
    be the signed chosen token of input i and slack_i its label margin beyond the smallest, Γ. With E_i = r slack_i + y
    z_i·b the risk Σ e^{−E_i} is stationary where Σ π_i z_i·b = Γ y/r, with π_i ∝ e^{−E_i}.
    """
    u = joint.svm.direction
    b = np.array([-u[1], u[0]])
    aside = joint.chosen_tokens @ b
    main_part = math.exp(min(log_r, 690.0)) * joint.svm.slack

    def pull(y: float) -> float:
        """Return the logarithm of the force on y in the direction of b minus the logarithm of the opposite force."""
        logs = -(main_part + y * aside)
        logs -= np.logaddexp.reduce(logs)
        with np.errstate(divide="ignore"):
            sizes = logs + np.log(np.abs(aside))
        forth = [*sizes[aside > 0]] + ([math.log(-y * joint.svm.margin) - log_r] if y < 0 else [])
        back = [*sizes[aside < 0]] + ([math.log(y * joint.svm.margin) - log_r] if y > 0 else [])
        up = float(np.logaddexp.reduce(forth)) if forth else -math.inf
        down = float(np.logaddexp.reduce(back)) if back else -math.inf
        if up == down:
            return 0.0
        return float(np.clip(up - down, -1e300, 1e300))

    if not np.any(aside):
        return np.zeros(2)
    far = 4 * (1 + log_r) / float(np.abs(aside[aside != 0]).min())
    y = float(brentq(pull, -far, far, xtol=1e-12, rtol=1e-14)) if pull(-far) > 0 > pull(far) else 0.0
    along = y * y / 2 * math.exp(-min(log_r, 690.0))
    return np.asarray(y * b - along * u)


def prompt_claim(name: str, pairs: list[Pair], target: Float64[np.ndarray, "k"]) -> Claim:
    """Claim that p_R/R converges to the unit vector ``target``, judged at the first and at the last radius.

    At the last radius, R = ρ/Θ, the distance may be ρ^{−1/2}, or must have halved. The claim is undecided if p_R/R is
    far from the target, but the risk is no lower than with the prompt R·target, so that the computed pair is no
    minimiser.
    """
    claim = _limit(name, pairs, [float(np.linalg.norm(x.p / x.R - target)) for x in pairs], "‖p_R/R − …‖")
    if claim.verdict is Verdict.FALSIFIED and not loses_to(pairs, target):
        return replace(
            claim, undecided="the risk of the pair that was found is no lower than with the limit as its prompt"
        )
    return claim


def head_claim(pairs: list[Pair]) -> Claim:
    """Claim that the head's direction converges to the max-margin head: v_r/r → v̄_mm (symbols: see the module)."""
    apart = [float(np.linalg.norm(x.w)) * math.exp(-min(x.log_r, 690.0)) for x in pairs]
    return _limit("head-is-max-margin", pairs, apart, "‖v_r/r − v̄_mm‖")


def _limit(name: str, pairs: list[Pair], apart: list[float], quantity: str) -> Claim:
    rho = pairs[-1].units
    radii = ", ".join(f"{x.R:.6g}" for x in pairs)
    detail = f"{quantity} = {', '.join(f'{x:.6g}' for x in apart)} at R = {radii}, log r = {pairs[-1].log_r:.6g}"
    if not all(math.isfinite(x) for x in apart):
        return Claim(name, Form.LIMIT, 0.0, 0.0, LIMIT_FOLLOWED, detail, undecided=detail)
    if apart[-1] < apart[0] / 2:
        return Claim(name, Form.LIMIT, 0.0, 0.0, LIMIT_FOLLOWED, detail)
    return Claim(name, Form.LIMIT, -apart[-1], rho**-0.5, LIMIT_FOLLOWED, detail)


def loses_to(pairs: list[Pair], direction: Float64[np.ndarray, "k"]) -> bool:
    """Return whether at every radius R the computed pair has a lower risk than its head with the prompt R·direction.

    The excess over the risk with all weight on α is compared, because the logarithms of the risks may agree in all
    digits.
    """
    for x in pairs:
        risk = excess_gradient(x.joint, x.log_r, x.w, x.p)[0]
        other = excess_gradient(x.joint, x.log_r, x.w, x.R * direction)[0]
        if not risk < other:
            return False
    return True


RADII = (NORM / EARLIER, NORM)
"""Values of RΘ (the prompt's radius times the margin Θ = 1/‖p_mm‖) at which the path is computed to judge limits."""
