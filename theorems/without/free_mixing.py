"""A proof that Assumption C fails: an input whose mixing costs no label margin to first order.

**Claim.** Let v_mm be the max-margin head of the signed tokens z_iα, Γ its margin, and let input i have

(a) label margin to spare, v̄_mm·z_iα > Γ, or
(b) a tilt u of the head with u·z_iα > 0, u·z_jα ≥ 0 at every other support j, and u ⊥ v_mm (so λ_i = 0 in every dual
    solution: by Farkas the two are alternatives).

(c) a token t whose label margin is as good as any support's, v̄_mm·z_it ≥ Γ.

Let moreover a prompt q select every other input strictly, (k_jα − k_jt)·q > 0, and only tie token t with α at input i
(in cases (a) and (b) t is any token). If ATT-SVM(α) is feasible, Assumption C fails.

*Proof.* At p = Rq + c p_mm, as R → ∞, all s_jα → 1 while 1 − s_iα → κ > 0, and a suitable c makes κ as small as
required. The label margin of the head v̄_mm tends to Γ, in case (a) once κ is small, in case (c) always. In case (b)
the unit head along v̄_mm + εu has at least Γ/√(1 + ε²‖u‖²) on the other inputs, and as much at i with ε = O(κ). So the
label margin is at least Γ − O(κ²) in the limit, above Γ − νκ for every ν > 0. ∎

Everything is decided over the rationals by :func:`reference_attention.svm.max_margin.max_margin`.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64, Int64

from generators.case import Case
from generators.finding import Finding, number
from generators.margin_assumptions import dot, exact_vector
from generators.optimal_tokens import optimal_support_tokens, optimal_tokens
from reference_attention.paths.joint_risk import Joint
from reference_attention.svm.max_margin import Infeasible, MaxMargin, max_margin
from theorems.without.joint_path_claims import joint_of, separator_of


def assumption_c_fails(case: Case) -> Finding:
    """Refute Assumption C over all inputs where the proof above applies."""
    return _refute(case, optimal_tokens(case), supports_only=False)


def assumption_c_over_supports_fails(case: Case) -> Finding:
    """Refute Assumption C over the supports of v_mm where the proof above applies."""
    return _refute(case, optimal_support_tokens(case), supports_only=True)


def _refute(case: Case, finding: Finding, *, supports_only: bool) -> Finding:
    joint = joint_of(case)
    if finding.holds is not None or joint is None or separator_of(joint) is None:
        return finding
    inputs = np.flatnonzero(joint.svm.support) if supports_only else np.arange(len(joint.alpha))
    for i in inputs.tolist():
        why = ""
        if not joint.svm.support[i]:
            why = f"has label margin to spare, {number(joint.svm.slack[i])}"
        elif tilt(joint, i) is not None:
            why = "is a support of v_mm without a dual"
        for t in np.flatnonzero(joint.others[i]).tolist():
            if not why and not as_good(joint, i, t):
                continue
            why = why or f"has token {t} with a label margin of Γ and more"
            if tying(joint.keys[inputs], joint.alpha[inputs], int(np.searchsorted(inputs, i)), t) is not None:
                return Finding(
                    False,
                    f"input {i} {why}, and prompts tie its token {t} with α while they select α elsewhere:"
                    " the label margin stays at Γ to first order",
                )
    return finding


def as_good(joint: Joint, i: int, t: int) -> bool:
    """Check v_mm·z_it ≥ 1 exactly, the condition of case (c)."""
    features = joint.chosen_tokens
    head = max_margin(np.stack([features, np.zeros_like(features)], axis=1), np.zeros(len(features), dtype=np.int64))
    assert isinstance(head, MaxMargin)
    return bool(dot(exact_vector(joint.tokens[i, t]), list(head.exact.p)) >= 1)


def tilt(joint: Joint, i: int) -> Float64[np.ndarray, "d"] | None:
    """Return the tilt u of case (b), rounded; None if no such u exists.

    The supports with a dual span the space that u must be orthogonal to.
    """
    features, support, dual = joint.chosen_tokens, joint.svm.support, joint.svm.duals > 0
    if dual[i]:
        return None
    blocks = [(features[j], 1 if j == i else 0) for j in np.flatnonzero(support)]
    blocks += [(-features[j], 0) for j in np.flatnonzero(dual)]
    keys = np.array([[z, np.zeros_like(z)] for z, _ in blocks])
    solution = max_margin(keys, np.zeros(len(blocks), dtype=np.int64), required=np.array([r for _, r in blocks]))
    return None if isinstance(solution, Infeasible) else solution.p


def tying(
    keys: Float64[np.ndarray, "m T k"], alpha: Int64[np.ndarray, "m"], i: int, t: int
) -> Float64[np.ndarray, "k"] | None:
    """Return a prompt with margins ≥ 1 at the inputs j ≠ i, and at input i ≥ 0 and exactly 0 for its token t, rounded.

    None if there is no such prompt.
    """
    required = np.ones(len(alpha) + 1, dtype=np.int64)
    required[[i, -1]] = 0
    # The last input prefers t to α; its other tokens repeat α.
    last = np.repeat(keys[i, alpha[i]][None], keys.shape[1], axis=0)
    last[t] = keys[i, t]
    if len(alpha) == 1:
        # There is no other input to select: the zero prompt ties everything.
        return np.zeros(keys.shape[2])
    solution = max_margin(np.concatenate([keys, last[None]]), np.append(alpha, t), required=required)
    return solution.p if isinstance(solution, MaxMargin) else None
