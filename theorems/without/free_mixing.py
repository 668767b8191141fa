"""A proof that Assumption C fails, if mixing the tokens of an input costs no label margin to first order.

**Claim.** Let z_it = Y_i x_it be the signed tokens, v_mm the max-margin head of the z_iα, with the dual variables λ,
v̄_mm = v_mm/‖v_mm‖ and Γ = 1/‖v_mm‖ its margin; supports are the inputs with v̄_mm·z_iα = Γ. Let input i have

(a) label margin to spare, v̄_mm·z_iα > Γ, or
(b) a tilt u of the head with u·z_iα > 0, u·z_jα ≥ 0 at every other support j, and u ⊥ v_mm (by Farkas, such a u exists
    iff λ_i = 0 in every dual solution), or
(c) a token t whose label margin is as large as that of a support, v̄_mm·z_it ≥ Γ.

Let moreover a prompt q select α strictly at every other input, (k_jα − k_jτ)·q > 0, and tie token t with α at input i
(in cases (a) and (b) t is any token). If ATT-SVM(α) is feasible, Assumption C fails.

*Proof.* Let s_jα be the softmax weight on α at input j. At p = Rq + c p_mm, as R → ∞, all s_jα → 1 while 1 − s_iα → κ >
0, and a suitable c makes κ as small as required. The label margin of the head v̄_mm tends to Γ, in case (a) once κ is
small, in case (c) always. In case (b) the unit head along v̄_mm + εu has at least Γ/√(1 + ε²‖u‖²) on the other inputs,
and as much at i with ε = O(κ). So the label margin is at least Γ − O(κ²) in the limit, above Γ − νκ for every ν > 0,
where ν is the constant of Assumption C. ∎

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
    """Refute Assumption C over all inputs, if the proof in the module's docstring applies."""
    return _refute(case, optimal_tokens(case), supports_only=False)


def assumption_c_over_supports_fails(case: Case) -> Finding:
    """Refute Assumption C over the supports, if the proof in the module's docstring applies."""
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
            why = why or f"has a token, {t}, whose label margin is at least Γ"
            if tying(joint.keys[inputs], joint.alpha[inputs], int(np.searchsorted(inputs, i)), t) is not None:
                return Finding(
                    False,
                    f"input {i} {why}, and some prompt ties its token {t} with α and selects α at other inputs:"
                    " to first order the label margin stays at Γ",
                )
    return finding


def as_good(joint: Joint, i: int, t: int) -> bool:
    """Decide exactly whether v_mm·z_it ≥ 1, which is the condition of case (c) in the module's claim."""
    features = joint.chosen_tokens
    head = max_margin(np.stack([features, np.zeros_like(features)], axis=1), np.zeros(len(features), dtype=np.int64))
    assert isinstance(head, MaxMargin)
    return bool(dot(exact_vector(joint.tokens[i, t]), list(head.exact.p)) >= 1)


def tilt(joint: Joint, i: int) -> Float64[np.ndarray, "d"] | None:
    """Return the tilt u of case (b) in the module's claim, rounded; None if no such u exists.

    As v_mm is a positive combination of the supports with a positive dual variable, u must be orthogonal to each of
    these.
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
    """Return a prompt, rounded, that selects α with margins ≥ 1 at all inputs j ≠ i and ties α and t at input i.

    Tied tokens have equal logits. At input i no other token has a larger logit than α. Return None if there is no such
    prompt.
    """
    required = np.ones(len(alpha) + 1, dtype=np.int64)
    required[[i, -1]] = 0
    # Append an input with chosen token t whose other tokens repeat α: it requires t's logit to be at least α's.
    last = np.repeat(keys[i, alpha[i]][None], keys.shape[1], axis=0)
    last[t] = keys[i, t]
    if len(alpha) == 1:
        # Without another input, the zero prompt gives all tokens equal logits.
        return np.zeros(keys.shape[2])
    solution = max_margin(np.concatenate([keys, last[None]]), np.append(alpha, t), required=required)
    return solution.p if isinstance(solution, MaxMargin) else None
