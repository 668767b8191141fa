"""Descent on the joint risk L(v, p) over the spheres ‖v‖ = r and ‖p‖ = R: Newton's method with the exact Hessian.

The method also descends along directions of negative curvature: the step is −|H|⁻¹∇, where |H| is the Hessian with its
eigenvalues taken positive, in units in which a logit and an output change by about one. So the descent leaves saddles,
and ends at a local minimiser (or at a point where rounding errors stop it, which the remaining gradient shows).

The notation is that of :mod:`.joint_risk`. A head of norm r is v = r v̄_mm + w with the offset w = B y − (r − √(r² −
‖y‖²)) v̄_mm, where the columns of B are orthonormal and orthogonal to v̄_mm, shape (d, e), e = d − 1. So y gives the
part of the head orthogonal to v̄_mm.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float64

from reference_attention.paths.joint_curvature import excess_curvature, joint_curvature
from reference_attention.paths.joint_risk import (
    Drops,
    Joint,
    exponents,
    head_drops,
    log_excess,
    radius,
    relative_log_risk,
)

TRIES, ON_THE_WAY = 100, 24
"""Largest number of times that a descent evaluates steps: for a full descent, and for a descent that may end early
(argument ``enough``)."""
SHORTER = 0.5 ** np.array([1, 1.5, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 19, 22, 25, 28, 32, 36, 40, 45, 50])
"""Fractions of a step that are tried if the full step does not lower the value; the fraction with the lowest value is
used."""
SUFFICIENT = 1e-4
"""Fraction of the decrease predicted by the gradient that a step must achieve."""
NEAR = 512.0
"""Difference of logits below which two tokens count as nearly tied."""
OFF = np.array([0.0, *2.0 ** np.arange(-2, 8)])
"""Values, tried in turn, to which the logit of α minus that of each nearly tied token is raised if it is smaller."""
TIES = 4
"""Largest number of times that the search of :func:`beside_ties` is repeated with newly tied tokens."""
LARGEST = 1e150
"""Size of derivatives beyond which a descent ends; derivatives overflow where a long head misclassifies an input."""
DIGITS = 1e-12
"""Relative difference below which two values of the function to minimise count as equal; of two points with equal
values a descent prefers the one with the smaller gradient."""


@dataclass(frozen=True, eq=False)
class Spheres:
    """The spheres ‖v‖ = r of heads and ‖p‖ = R of prompts (symbols: see the module).

    Attributes:
        joint: the tokens, keys and chosen tokens α, and the solution of the head's SVM.
        log_r, R: log r, and R.
        basis: the matrix B, (d, e).
    """

    joint: Joint
    log_r: float
    R: float
    basis: Float64[np.ndarray, "d e"]

    @cached_property
    def size(self) -> float:
        """Return the largest norm of a signed token, max ‖z_it‖."""
        return float(np.max(np.linalg.norm(self.joint.tokens, axis=-1)))

    def across(self, p: Float64[np.ndarray, "k"]) -> Float64[np.ndarray, "k t"]:
        """Return an orthonormal basis, as columns, of directions orthogonal to the prompt p that change the risk."""
        basis = self.joint.span_basis
        if basis is None:
            return complement(p / self.R)
        part = basis.T @ p
        return np.asarray(basis @ complement(part / float(np.linalg.norm(part))))

    def offset(self, y: Float64[np.ndarray, "*b e"]) -> Float64[np.ndarray, "*b d"]:
        """Return the offset w with ‖r v̄_mm + w‖ = r whose part orthogonal to v̄_mm is B y."""
        size = np.linalg.norm(y, axis=-1, keepdims=True)
        ratio = size * math.exp(-min(self.log_r, 690.0))
        along = size * ratio / (1 + np.sqrt((1 - ratio) * (1 + ratio)))
        return np.asarray(y @ self.basis.T - along * self.joint.svm.direction)

    def shorten(self, y: Float64[np.ndarray, "*b e"]) -> Float64[np.ndarray, "*b e"]:
        """Return y, shortened to the length 0.99 r if it is longer; heads with v̄_mm·v ≤ 0 are not searched."""
        size, limit = np.linalg.norm(y, axis=-1, keepdims=True), 0.99 * radius(self.log_r)
        return np.asarray(y * np.where(size > limit, limit / np.maximum(size, limit), 1.0))


@dataclass(frozen=True, eq=False)
class Local:
    """The value and the derivatives of a function on the spheres, at one pair of a head (given by y) and a prompt p.

    Attributes:
        y, p: the coordinates of the head's part orthogonal to v̄_mm, (e,), and the prompt, (k,).
        value, slope, second: the value of the function, its gradient and its Hessian in (y, τ), where τ are coordinates
            of moves of p.
        across: an orthonormal basis Q, as columns, of the moves orthogonal to p that change the risk, (k, t); τ ∈ R^t
            moves p to R(p + Qτ)/‖p + Qτ‖.
    """

    y: Float64[np.ndarray, "e"]
    p: Float64[np.ndarray, "k"]
    value: float
    slope: Float64[np.ndarray, "m"]
    second: Float64[np.ndarray, "m m"]
    across: Float64[np.ndarray, "k t"]


@dataclass(frozen=True, eq=False)
class JointObjective:
    """The function log L(v, p) + rΓ of the coordinates y of the head and τ of the prompt (see :class:`Local`).

    Attributes:
        spheres: the spheres.
        scale: the unit of y, about r q where r q ≫ 1, with q the softmax weight of tokens other than α; the gradient in
            p is divided by it before its length is measured.
        moves: whether the prompt moves, too, or only the head.
    """

    spheres: Spheres
    scale: float = 1.0
    moves: bool = True

    def values(self, y: Float64[np.ndarray, "*b e"], p: Float64[np.ndarray, "*b k"]) -> Float64[np.ndarray, "*b"]:
        """Return the values of the function at pairs of y and p, (*b,)."""
        joint, log_r = self.spheres.joint, self.spheres.log_r
        return relative_log_risk(joint, log_r, self.spheres.offset(y), joint.log_weights(p))

    def local(self, y: Float64[np.ndarray, "e"], p: Float64[np.ndarray, "k"]) -> Local:
        """Return the value and the derivatives of the function at a pair of y and p."""
        s = self.spheres
        value, gradient, second = joint_curvature(s.joint, s.log_r, s.offset(y), p)
        d, e, u = s.basis.shape[0], y.size, s.joint.svm.direction
        across = s.across(p) if self.moves else np.zeros((p.size, 0))
        inverse = math.exp(-min(s.log_r, 690.0))
        ratio = y * inverse
        root = math.sqrt(max(1 - float(ratio @ ratio), 1e-2))
        move = np.zeros((len(gradient), e + across.shape[1]))
        move[:d, :e] = s.basis - np.outer(u, ratio / root)
        move[d:, e:] = across
        out = move.T @ second @ move
        pull = -float(u @ gradient[:d]) * inverse
        out[:e, :e] += pull * (np.eye(e) / root + np.outer(ratio, ratio) / root**3)
        out[e:, e:] -= np.eye(across.shape[1]) * (float(gradient[d:] @ p) / s.R**2)
        return Local(y, p, value, move.T @ gradient, out, across)


@dataclass(frozen=True, eq=False)
class PromptObjective:
    """The function log(L − L_α) + rΓ of prompts, for a fixed head; L_α is the risk if all weight is on α.

    The head is r v̄_mm + w. If ``orthogonal_to`` is given, the prompt moves only in directions orthogonal to these
    rows; y is empty.
    """

    spheres: Spheres
    w: Float64[np.ndarray, "d"]
    scale: float = 1.0
    orthogonal_to: Float64[np.ndarray, "m k"] | None = None

    @cached_property
    def drops(self) -> Drops:
        """Return the result of :func:`.joint_risk.head_drops` for the head."""
        return head_drops(self.spheres.joint, self.spheres.log_r, self.w)

    def values(self, y: Float64[np.ndarray, "*a e"], p: Float64[np.ndarray, "*b k"]) -> Float64[np.ndarray, "*b"]:
        """Return the values of the function at prompts p, with an empty y; +inf where the risk is not above L_α."""
        joint, log_r = self.spheres.joint, self.spheres.log_r
        logs = joint.log_weights(p)
        sign, total = log_excess(joint, log_r, self.w, logs, exponents(joint, log_r, self.w, logs), self.drops)
        return np.asarray(np.where(sign > 0, total - math.log(logs.shape[-2]), math.inf))

    def local(self, y: Float64[np.ndarray, "e"], p: Float64[np.ndarray, "k"]) -> Local:
        """Return the value and the derivatives of the function at the prompt p, with an empty y."""
        s = self.spheres
        value, gradient, second = excess_curvature(s.joint, s.log_r, self.w, self.drops, p)
        across = s.across(p)
        if self.orthogonal_to is not None:
            _, sizes, basis = np.linalg.svd(self.orthogonal_to @ across)
            across = across @ basis[int(np.sum(sizes > 1e-9 * s.joint.longest_row)) :].T
        out = across.T @ second @ across - np.eye(across.shape[1]) * (float(gradient @ p) / s.R**2)
        return Local(y, p, value, across.T @ gradient, out, across)


def descend(
    function: JointObjective | PromptObjective,
    y: Float64[np.ndarray, "e"],
    p: Float64[np.ndarray, "k"],
    gradient: float,
    enough: float = 0.0,
) -> tuple[Float64[np.ndarray, "e"], Float64[np.ndarray, "k"], float]:
    """Return the local minimiser (y, p) that a descent reaches from a given pair, and the norm of the gradient there.

    The norm is infinite if the function is infinite at the start.

    Args:
        function: the function to minimise.
        y: the coordinates y of the first head, (e,).
        p: the first prompt, (k,).
        gradient: the norm of the gradient at which the descent ends.
        enough: the descent also ends when a step would lower the function by less than this number.
    """
    s, scale, e = function.spheres, function.scale, y.size
    now = function.local(y, p)
    t = now.across.shape[1]
    units = np.concatenate([np.full(e, scale / s.size), np.full(t, 1 / s.joint.longest_row)])
    measured = np.concatenate([np.ones(e), np.full(t, 1 / scale)])
    gradient_norm = _norm(now.slope * measured) if math.isfinite(now.value) else math.inf
    tries = 0
    while tries < (ON_THE_WAY if enough else TRIES):
        scaled = now.second * np.outer(units, units)
        if not gradient < gradient_norm < LARGEST or not np.abs(scaled).max(initial=0.0) < LARGEST:
            break
        step = _newton(now.slope, scaled, units)
        longest = max(_norm(step[:e]) / (4 * (scale / s.size + _norm(now.y))), _norm(step[e:]) / s.R)
        length = 1.0 / max(1.0, longest)
        promised = float(now.slope @ step)
        digits = DIGITS * abs(now.value)
        if -promised < enough:
            break
        after = None
        for lengths in (length * np.ones(1), length * SHORTER):
            tries += 1
            heads = s.shorten(now.y + lengths[:, None] * step[:e])
            prompts = now.p + lengths[:, None] * (now.across @ step[e:])
            if t:
                prompts *= s.R / np.linalg.norm(prompts, axis=1, keepdims=True)
            values = function.values(heads, prompts)
            best = int(np.argmin(np.where(np.isnan(values), math.inf, values)))
            lower = values[best] < now.value + SUFFICIENT * lengths[best] * promised and (
                values[best] < now.value - digits
            )
            # If the value changes by less than its rounding error, the lengths of the gradients are compared instead.
            if lower or values[best] <= now.value + digits:
                new = function.local(heads[best], prompts[best])
                if lower or _norm(new.slope * measured) < gradient_norm:
                    after = new
                    break
            if -promised < digits:
                break
        if after is None:
            break
        now, gradient_norm = after, _norm(after.slope * measured)
    return now.y, now.p, gradient_norm


def beside_ties(
    spheres: Spheres, w: Float64[np.ndarray, "d"], p: Float64[np.ndarray, "k"], gradient: float
) -> Float64[np.ndarray, "k"]:
    """Return a prompt of lower risk, reached by a descent that fixes the logits of nearly tied tokens; p if none is.

    If tokens of input i nearly tie with α at r ≫ 1, so that their softmax weight q_i is neither 0 nor 1, then E_i of
    :mod:`.joint_risk` changes with q_i at a rate of order r, and so multiplies the rounding error of logits by r. Then
    derivatives in directions that change the tied logits are meaningless, but derivatives in directions that keep them
    are accurate. So the descent, on the log excess, keeps the differences of the tied logits fixed, at the best of
    several values.
    """
    s, empty = spheres, np.zeros(0)
    prompt_objective = PromptObjective(s, w)
    lowest = float(prompt_objective.values(empty, p))
    for _ in range(TIES):
        rows = s.joint.rows[s.joint.others]
        ties = rows[np.abs(rows @ p) < NEAR]
        if not len(ties) > 0 or not 2.0**-20 * s.joint.longest_row * s.R > NEAR:
            break
        distances = np.maximum(OFF[:, None], ties @ p)
        prompts = p + (distances - ties @ p) @ np.linalg.pinv(ties).T
        prompts *= s.R / np.linalg.norm(prompts, axis=1, keepdims=True)
        values = prompt_objective.values(empty, prompts)
        begin = prompts[int(np.argmin(np.where(np.isnan(values), math.inf, values)))]
        _, descended, _ = descend(PromptObjective(s, w, orthogonal_to=ties), empty, begin, gradient)
        value = float(prompt_objective.values(empty, descended))
        if not value < lowest - 1.0:
            break
        p, lowest = descended, value
    return p


def _norm(x: Float64[np.ndarray, "m"]) -> float:
    return math.sqrt(float(x @ x))


def _newton(
    slope: Float64[np.ndarray, "m"], scaled: Float64[np.ndarray, "m m"], units: Float64[np.ndarray, "m"]
) -> Float64[np.ndarray, "m"]:
    """Return the step −|H|⁻¹∇; eigenvalues of |H| are raised to at least the rounding error of the largest.

    ``slope`` is ∇, ``units`` the units of the m coordinates, and ``scaled`` the Hessian H in these units.
    """
    values, vectors = np.linalg.eigh(scaled)
    sizes = np.abs(values)
    sizes = np.maximum(sizes, max(float(sizes.max(initial=0.0)) * 2.0**-46, 1e-300))
    return np.asarray(-units * (vectors @ ((vectors.T @ (units * slope)) / sizes)))


def complement(u: Float64[np.ndarray, "d"]) -> Float64[np.ndarray, "d e"]:
    """Return an orthonormal basis, as columns, of the orthogonal complement of a unit vector, shape (d, d − 1).

    The basis consists of all but one column of a reflection that maps u to a coordinate axis.
    """
    k = int(np.argmax(np.abs(u)))
    normal = u.copy()
    normal[k] += math.copysign(1.0, float(u[k]))
    reflection = np.eye(len(u)) - np.outer(normal, normal) * (2 / float(normal @ normal))
    return np.asarray(np.delete(reflection, k, axis=1))
