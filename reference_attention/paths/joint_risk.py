"""The joint risk of (v, p), relative to e^{−rΓ} and in logarithms, so that no digits are lost at r = e^{RΘ}.

Let z_it = Y_i x_it be the signed tokens, α the chosen token of each input, v_mm the solution of the head's SVM on the
z_iα, v̄_mm = v_mm/‖v_mm‖, and Γ = min_i v̄_mm·z_iα the label margin of v̄_mm. With the logistic loss, the joint risk
L(v, p) of a head of norm r is of size e^{−rΓ}: at rΓ > 745 it underflows, and at r = e^{1000} not even log L has digits
left. So the head is written v = r v̄_mm + w with the *offset* w, and all formulas are in terms of

    E_i = Y_i v·x_i^p − rΓ = r (slack_i − Σ_{t≠α} s_it δ_it) + w·z_i^p,        δ_it = v̄_mm·(z_iα − z_it),

where s_i = softmax(K_i p) are the softmax weights, x_i^p = Σ_t s_it x_it the attended token, z_i^p = Y_i x_i^p, and
slack_i = v̄_mm·z_iα − Γ, which is exactly zero at the support vectors z_iα of the head's SVM. The product r s_it is
computed as e^{log r + log s_it}. Then log L(v, p) + rΓ = log mean_i exp(−E_i + h(rΓ + E_i)) with h(u) = log(log(1 +
e^{−u})) + u, which tends to 0 as u → ∞.

Shapes: leading batch axes ``*b``; signed tokens z (n, T, d), keys (n, T, k), offsets w (*b, d), log weights (*b, n, T).

References: *Max-Margin Token Selection in Attention Mechanism*, Section 3, (ERM) with logistic loss.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float64, Int64

from reference_attention.floats import EPS
from reference_attention.svm.label_svm import LabelSvm, label_svm
from reference_attention.svm.max_margin import Infeasible

NOISE = 2.0**-46
"""Fraction of the largest singular value of the rows k_iα − k_it below which a singular value counts as a rounding
error. The direction of such a singular value contributes to the logits of a prompt of norm R at most this fraction of R
max‖k_iα − k_it‖, up to a factor of the number of rows."""
Drops = tuple[Float64[np.ndarray, "n T"], Float64[np.ndarray, "n T"]]
"""Sign and logarithm of the decrease of an input's output if token t gets all weight in place of α
(:func:`head_drops`)."""


@dataclass(frozen=True, eq=False)
class Joint:
    """Signed tokens, keys and chosen tokens of a joint problem, and the solution of the head's SVM (symbols: module).

    Attributes:
        tokens: the signed tokens z_it = Y_i x_it, shape (n, T, d).
        keys: the keys k_it, shape (n, T, k).
        alpha: the chosen token α of each input, shape (n,).
        svm: the solution v_mm of the head's SVM on the chosen tokens z_iα.
    """

    tokens: Float64[np.ndarray, "n T d"]
    keys: Float64[np.ndarray, "n T k"]
    alpha: Int64[np.ndarray, "n"]
    svm: LabelSvm

    @cached_property
    def chosen_tokens(self) -> Float64[np.ndarray, "n d"]:
        """Return the signed chosen tokens z_iα, shape (n, d)."""
        return np.asarray(chosen_rows(self.tokens, self.alpha))

    @cached_property
    def others(self) -> Bool[np.ndarray, "n T"]:
        """Return the mask of the tokens other than α, shape (n, T)."""
        return np.asarray(np.arange(self.tokens.shape[1]) != self.alpha[:, None])

    @cached_property
    def sides(self) -> Float64[np.ndarray, "n T d"]:
        """Return z_iα − z_it, shape (n, T, d)."""
        return np.asarray(self.chosen_tokens[:, None] - self.tokens)

    @cached_property
    def rows(self) -> Float64[np.ndarray, "n T k"]:
        """Return k_iα − k_it, shape (n, T, k)."""
        return np.asarray(chosen_rows(self.keys, self.alpha)[:, None] - self.keys)

    @cached_property
    def longest_row(self) -> float:
        """Return max ‖k_iα − k_it‖; logit differences of a prompt of norm R are at most R times this length."""
        return float(np.max(np.linalg.norm(self.rows, axis=-1)))

    def output_rounding(self, w: Float64[np.ndarray, "d"]) -> float:
        """Return a bound of the rounding error of outputs w·z_it, from the rounding of v̄_mm and of sums.

        If the offset w of a head is long enough, the computed outputs, and so the risk, consist only of rounding
        errors. Because of the rounding of v̄_mm, the risk seems to decrease along some offsets at support vectors; a
        solver would follow them without bound at r = e^{10⁸}.
        """
        return float(np.linalg.norm(w) * np.max(np.linalg.norm(self.tokens, axis=-1))) * (w.size + 8) * EPS

    @cached_property
    def span_basis(self) -> Float64[np.ndarray, "k m"] | None:
        """Return an orthonormal basis, as columns, of the span of the k_iα − k_it; None if the span is R^k or {0}.

        The risk depends only on the part of p in this span, so minimisers of a given norm lie in the span. A direction
        is left out if its singular value is below :data:`NOISE` times the largest: it would be zero without the
        rounding of keys.
        """
        rows = self.rows[self.others]
        _, sizes, directions = np.linalg.svd(rows, full_matrices=False)
        significant = directions[sizes > NOISE * float(sizes.max(initial=0.0))]
        return None if len(significant) in (0, rows.shape[1]) else np.asarray(significant.T)

    def unit_prompt(self, q: Float64[np.ndarray, "k"]) -> Float64[np.ndarray, "k"]:
        """Return the unit vector in the direction of q's projection on the span of the k_iα − k_it.

        If the projection is 0, the result is any direction of the span.
        """
        if self.span_basis is not None:
            part = self.span_basis.T @ q
            q = self.span_basis @ part if part.any() else self.span_basis[:, 0]
        return np.asarray(q / float(np.linalg.norm(q)))

    @cached_property
    def drops(self) -> Float64[np.ndarray, "n T"]:
        """Return δ_it = v̄_mm·(z_iα − z_it), the drop of the output of v̄_mm from token α to token t, shape (n, T)."""
        return np.asarray(np.sum(self.sides * self.svm.direction, axis=-1))

    @cached_property
    def along(self) -> tuple[Float64[np.ndarray, "n T1"], Float64[np.ndarray, "n T1"]]:
        """Return signs and logarithms of slack_i and of −δ_it (with sign 0 at t = α), each of shape (n, 1 + T).

        The part of E_i from r v̄_mm is r (slack_i − Σ_{t≠α} s_it δ_it), a combination of these numbers.
        """
        terms = np.concatenate([self.svm.slack[:, None], np.where(self.others, -self.drops, 0.0)], axis=1)
        with np.errstate(divide="ignore"):
            return np.sign(terms), np.log(np.abs(terms))

    def log_weights(self, p: Float64[np.ndarray, "*b k"]) -> Float64[np.ndarray, "*b n T"]:
        """Return the logarithms of the softmax weights, log softmax(K_i p), shape (*b, n, T)."""
        relative = -_dot(self.rows, p)
        relative -= relative.max(axis=-1, keepdims=True)
        return np.asarray(relative - np.log(np.exp(relative).sum(axis=-1, keepdims=True)))

    def log_nonoptimality(self, log_weights: Float64[np.ndarray, "*b n T"]) -> Float64[np.ndarray, "*b n"]:
        """Return log(1 − s_iα), computed as the log of the sum of the other tokens' weights, shape (*b, n)."""
        return np.asarray(np.logaddexp.reduce(np.where(self.others, log_weights, -np.inf), axis=-1))


def joint_of_chosen(
    tokens: Float64[np.ndarray, "n T d"], keys: Float64[np.ndarray, "n T k"], alpha: Int64[np.ndarray, "n"]
) -> Joint | None:
    """Return the joint problem with chosen tokens α; None if no head v has v·z_iα > 0 for all inputs i."""
    svm = label_svm(chosen_rows(tokens, alpha))
    return None if isinstance(svm, Infeasible) else Joint(tokens, keys, alpha, svm)


def chosen_rows(values: Float64[np.ndarray, "n T d"], alpha: Int64[np.ndarray, "n"]) -> Float64[np.ndarray, "n d"]:
    """Return ``values`` of the chosen tokens α, shape (n, d)."""
    return np.asarray(values[np.arange(len(alpha)), alpha])


def exponents(
    joint: Joint,
    log_r: float,
    w: Float64[np.ndarray, "*#b d"],
    log_weights: Float64[np.ndarray, "*b n T"],
) -> Float64[np.ndarray, "*b n"]:
    """Return E_i = Y_i v·x_i^p − rΓ of the head v = r v̄_mm + w, shape (*b, n) (symbols: see the module)."""
    sign, size = joint.along
    sign, size = signed_logsumexp(
        sign, size + np.concatenate([np.zeros((*log_weights.shape[:-1], 1)), log_weights], -1)
    )
    along = sign * np.exp(np.minimum(log_r + size, 690.0))
    sideways = np.sum(np.exp(log_weights) * _dot(joint.sides, w), axis=-1)
    return np.asarray(along + np.vecdot(joint.chosen_tokens, w[..., None, :]) - sideways)


def relative_log_risk(
    joint: Joint,
    log_r: float,
    w: Float64[np.ndarray, "*b d"],
    log_weights: Float64[np.ndarray, "*b n T"],
) -> Float64[np.ndarray, "*b"]:
    """Return log L(r v̄_mm + w, p) + rΓ, from the logarithms of the softmax weights at p, shape (*b,)."""
    return log_mean_exp(log_losses(joint, log_r, exponents(joint, log_r, w, log_weights)))


def log_mean_exp(x: Float64[np.ndarray, "*b n"]) -> Float64[np.ndarray, "*b"]:
    """Return log((1/n) Σ_i e^{x_i}), shape (*b,)."""
    return np.asarray(np.logaddexp.reduce(x, axis=-1) - math.log(x.shape[-1]))


def retract(joint: Joint, log_r: float, w: Float64[np.ndarray, "*b d"]) -> Float64[np.ndarray, "*b d"]:
    """Return the offset w, moved along −v̄_mm and shortened across it if necessary, so that ‖r v̄_mm + w‖ ≤ r.

    Feasible offsets are unchanged. With w_⊥ the part of w orthogonal to v̄_mm, the condition is v̄_mm·w ≤ −(r − √(r² −
    ‖w_⊥‖²)) = −‖w_⊥‖²/(r + √(r² − ‖w_⊥‖²)). The last form is used; it can be computed without r².
    """
    u = joint.svm.direction
    along = np.sum(w * u, axis=-1, keepdims=True)
    across = w - along * u
    # Project a second time, so that the error of v̄_mm·w_⊥ is a rounding error of w_⊥ and not of the part that was
    # removed.
    across = across - np.sum(across * u, axis=-1, keepdims=True) * u
    size = np.linalg.norm(across, axis=-1, keepdims=True)
    ratio = np.exp(np.log(np.maximum(size, 1e-300)) - log_r)
    across = across * np.where(ratio > 1, 1 / np.maximum(ratio, 1.0), 1.0)
    ratio = np.minimum(ratio, 1.0)
    root = np.sqrt((1 - ratio) * (1 + ratio))
    top = -np.minimum(size, radius(log_r)) * ratio / (1 + root)
    # The ball has another boundary at v̄_mm·w = −r(1 + root), far from any point of interest.
    bottom = -radius(log_r) * (1 + root)
    return np.asarray(across + np.clip(along, bottom, top) * u)


def joint_gradient(
    joint: Joint, log_r: float, w: Float64[np.ndarray, "d"], p: Float64[np.ndarray, "k"]
) -> tuple[float, Float64[np.ndarray, "d"], Float64[np.ndarray, "k"]]:
    """Return log L(r v̄_mm + w, p) + rΓ and its derivatives with respect to w and p.

    With Λ = log L + rΓ, dΛ/dw = −Σ π_i z_i^p and dΛ/dp = Σ π_i Σ_t s_it c_it (k_it − k̄_i), where c_it = (r v̄_mm +
    w)·(z_iα − z_it), k̄_i = Σ_t s_it k_it, π_i = |ℓ'(u_i)|/Σ_j ℓ(u_j) and u_i = rΓ + E_i. Everything is computed from
    differences to α, so nothing cancels.
    """
    logs = joint.log_weights(p)
    E = exponents(joint, log_r, w, logs)
    losses = log_losses(joint, log_r, E)
    total = np.logaddexp.reduce(losses)
    log_pi = log_slopes(joint, log_r, E) - total
    shares, rows = _prompt_terms(joint, head_drops(joint, log_r, w), logs, log_pi)
    by_p = np.sum(shares[..., None] * rows, axis=(0, 1))
    features = joint.chosen_tokens - np.sum((np.exp(logs) * joint.others)[..., None] * joint.sides, axis=1)
    return float(total - math.log(len(E))), -np.exp(log_pi) @ features, by_p


def excess_gradient(
    joint: Joint, log_r: float, w: Float64[np.ndarray, "d"], p: Float64[np.ndarray, "k"]
) -> tuple[float, Float64[np.ndarray, "k"]]:
    """Return log(L(v, p) − L_α(v)) + rΓ and its derivative in p, for the head v = r v̄_mm + w.

    L_α(v) is the risk of v if all weight is on α. At large norms of p, L(v, p) differs from L_α(v) only beyond the last
    digit of a float; this logarithm keeps the difference. If the difference is not positive, the result is +inf.
    """
    logs = joint.log_weights(p)
    E = exponents(joint, log_r, w, logs)
    drops = head_drops(joint, log_r, w)
    sign, total = log_excess(joint, log_r, w, logs, E, drops)
    if sign <= 0:
        return math.inf, np.zeros(p.size)
    shares, rows = _prompt_terms(joint, drops, logs, log_slopes(joint, log_r, E) - float(total))
    return float(total - math.log(len(E))), np.sum(shares[..., None] * rows, axis=(0, 1))


def log_excess(
    joint: Joint,
    log_r: float,
    w: Float64[np.ndarray, "d"],
    logs: Float64[np.ndarray, "*b n T"],
    E: Float64[np.ndarray, "*b n"],
    drops: Drops,
) -> tuple[Float64[np.ndarray, "*b"], Float64[np.ndarray, "*b"]]:
    """Return the sign and the logarithm of n (L(v, p) − L_α(v)) e^{rΓ}, each (*b,).

    They are computed from the logarithms ``logs`` of the softmax weights, the exponents E of :func:`exponents`, and the
    result of :func:`head_drops` for w.
    """
    sign, size = drops
    sign, size = signed_logsumexp(sign, size + logs)
    return signed_logsumexp(sign, _logistic_excess(joint, log_r, _at_alpha(joint, log_r, w), E, sign, size))


def log_slopes(joint: Joint, log_r: float, E: Float64[np.ndarray, "*b n"]) -> Float64[np.ndarray, "*b n"]:
    """Return log |ℓ'(rΓ + E_i)| + rΓ for the logistic loss, shape (*b, n)."""
    return np.asarray(-E - np.logaddexp(0.0, -(radius(log_r) * joint.svm.margin + E)))


def log_losses(joint: Joint, log_r: float, E: Float64[np.ndarray, "*b n"]) -> Float64[np.ndarray, "*b n"]:
    """Return log ℓ(rΓ + E_i) + rΓ for the logistic loss, shape (*b, n)."""
    u = radius(log_r) * joint.svm.margin + E
    low, high = np.minimum(u, 30.0), np.maximum(u, 30.0)
    return np.asarray(-E + np.where(u < 30.0, np.log(np.logaddexp(0.0, -low)) + low, -np.exp(-high) / 2))


def _at_alpha(joint: Joint, log_r: float, w: Float64[np.ndarray, "d"]) -> Float64[np.ndarray, "n"]:
    """Return E_i if all weight is on α, r slack_i + w·z_iα, shape (n,)."""
    return np.asarray(radius(log_r) * joint.svm.slack + joint.chosen_tokens @ w)


def head_drops(joint: Joint, log_r: float, w: Float64[np.ndarray, "d"]) -> Drops:
    """Return sign and logarithm of c_it = (r v̄_mm + w)·(z_iα − z_it), with sign 0 at t = α, each of shape (n, T)."""
    across = _dot(joint.sides, w)
    by_sign, by_size = (x[:, 1:] for x in joint.along)
    with np.errstate(divide="ignore"):
        size = np.stack([log_r + by_size, np.log(np.abs(across))], axis=-1)
    sign, size = signed_logsumexp(np.stack([-by_sign, np.sign(across)], axis=-1), size)
    sign = np.where(joint.others, sign, 0.0)
    return sign, np.where(sign == 0, -np.inf, size)


def log_moves(
    drops: Drops, logs: Float64[np.ndarray, "n T"]
) -> tuple[Float64[np.ndarray, "n T"], Float64[np.ndarray, "n T"]]:
    """Return sign and logarithm of s_it c_it, with c of :func:`head_drops` and the log weights ``logs``; 0 at t = α."""
    sign, size = drops
    return sign, np.where(sign == 0, -np.inf, size + logs)


def _logistic_excess(
    joint: Joint,
    log_r: float,
    at_alpha: Float64[np.ndarray, "n"],
    E: Float64[np.ndarray, "*b n"],
    sign: Float64[np.ndarray, "*b n"],
    log_size: Float64[np.ndarray, "*b n"],
) -> Float64[np.ndarray, "*b n"]:
    """Return log |ℓ(u − x) − ℓ(u)| + rΓ for each input, where x = sign·e^{log_size}.

    Here u = rΓ + ``at_alpha``, with the E_i if all weight is on α, and u − x = rΓ + E_i.

    Up to |x| = 1 the result is computed as log |log(1 + σ(−u) (e^x − 1))|. Beyond that, the losses ℓ(u − x) and ℓ(u)
    differ enough to be subtracted. E_i is then not computed as ``at_alpha`` − x, since both may be of size r.
    """
    base = log_slopes(joint, log_r, at_alpha)
    log_x = np.minimum(log_size, 0.0)
    x = sign * np.exp(log_x)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        log_expm1 = np.where(np.abs(x) < 1e-8, log_x + x / 2, np.log(np.abs(np.expm1(x))))
        log_y = base - radius(log_r) * joint.svm.margin + log_expm1
        # For small y, log|log(1 + y)| = log|y| − y/2 + O(y²).
        near = np.where(
            log_y < -20.0,
            -sign * np.exp(np.minimum(log_y, 0.0)) / 2,
            np.log(np.abs(np.log1p(sign * np.exp(np.clip(log_y, -20.0, 2.0))))) - np.clip(log_y, -20.0, 2.0),
        )
        if (log_size <= 0.0).all():
            return np.asarray(base + log_expm1 + near)
        losses, at = log_losses(joint, log_r, E), log_losses(joint, log_r, at_alpha)
        top, low = np.maximum(losses, at), np.minimum(losses, at)
        far = top + np.log(-np.expm1(np.minimum(low - top, -1e-300)))
    return np.asarray(np.where(log_size <= 0.0, base + log_expm1 + near, far))


def _prompt_terms(
    joint: Joint,
    drops: Drops,
    logs: Float64[np.ndarray, "n T"],
    log_factors: Float64[np.ndarray, "n"],
) -> tuple[Float64[np.ndarray, "n T"], Float64[np.ndarray, "n T k"]]:
    """Return e^{log_factors_i} s_it c_it and k_it − k̄_i; their products add up to Σ_i e^{log_factors_i} d(−E_i)/dp.

    Here c_it is that of :func:`head_drops`, and k̄_i = Σ_t s_it k_it. Factors and weights are combined in logarithms.
    """
    sign, size = log_moves(drops, logs)
    moves = sign * np.exp(np.clip(size + log_factors[:, None], -745.0, 690.0))
    mean = np.sum((np.exp(logs) * joint.others)[..., None] * -joint.rows, axis=1)
    return moves, -joint.rows - mean[:, None]


def signed_logsumexp(
    sign: Float64[np.ndarray, "*#b m"], size: Float64[np.ndarray, "*b m"]
) -> tuple[Float64[np.ndarray, "*b"], Float64[np.ndarray, "*b"]]:
    """Return sign and logarithm of Σ sign·e^size over the last axis; terms of sign zero do not count."""
    size = np.where(sign == 0, -math.inf, size)
    top = np.maximum(size.max(axis=-1, keepdims=True), -1e300)  # −inf − (−inf) would be NaN
    total = (sign * np.exp(size - top)).sum(axis=-1)
    with np.errstate(divide="ignore"):
        return np.asarray(np.sign(total)), np.asarray(top[..., 0] + np.log(np.abs(total)))


def _dot(sides: Float64[np.ndarray, "n T d"], w: Float64[np.ndarray, "*b d"]) -> Float64[np.ndarray, "*b n T"]:
    return np.asarray(np.vecdot(sides, w[..., None, None, :]))


def radius(log_r: float) -> float:
    """Return r = e^{log r}, but at most e^690, about 1e299; no computation distinguishes larger norms of heads."""
    return math.exp(min(log_r, 690.0))
