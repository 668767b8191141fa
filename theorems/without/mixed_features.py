"""A lower bound of ‖v_r/r − v̄_mm‖ if no prompt selects α, from one prompt and one certificate of infeasibility.

(v_r, p_R) is the joint regularization path: the pair with the least risk L among heads of norm ≤ r and prompts of norm
≤ R. v̄_mm is the unit max-margin head of the signed tokens z_iα, where z_it = Y_i x_it. The feature z_i^p is the mean
of the z_it with the softmax weights s_it at p, and a_it = v̄_mm·z_it.

Let λ ≥ 0, λ ≠ 0, with Σ λ_it (k_iα − k_it) = 0 prove that ATT-SVM(α) is infeasible. At every p some (i, t) with λ_it >
0 has (k_iα − k_it)·p ≤ 0, so s_iα ≤ s_it. Therefore

    min_i v̄_mm·z_i^p ≤ m0 := max over λ_it > 0 of max( (a_iα + a_it)/2, max over τ ≠ α of a_iτ ).

A unit head v at the distance ε from v̄_mm has min_i v·z_i^p ≤ m0 + ε M, M = max ‖z_it‖, at every p. If at one prompt p1
some unit head has the label margin m1, then minimisers have n L ≥ ℓ(r (m0 + ε M)) and L ≤ ℓ(r m1), so ε ≥ (m1 − m0)/M −
log(n)/(rM) − o(1/r): as r grows the head stays away from v̄_mm, for every R ≥ ‖p1‖.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from generators.case import Case
from reference_attention.paths.joint_risk import Joint
from reference_attention.risk import softmax_weights
from reference_attention.svm.label_svm import label_svm
from reference_attention.svm.max_margin import Infeasible, max_margin
from theorems.core.claim import Claim, Form
from theorems.core.implementation import Implementation
from theorems.without.flow_claims import LIMIT_FOLLOWED, NORM
from theorems.without.joint_path_claims import joint_of

SCANNED = (0.5, 1.0, 2.0, 8.0, 64.0)
"""Norms of the prompts that are tried, in units of 1/(largest ‖k_iα − k_it‖)."""
DIRECTIONS = 12
"""Number of random directions in which prompts are tried, besides the directions of the rows k_iα − k_it."""


@dataclass(frozen=True, eq=False)
class MixedMargins:
    """The label margins m0 and m1 (see the module), and the prompt p1 at which a unit head has label margin m1.

    Attributes:
        at_most: m0, an upper bound of the label margin that v̄_mm has at any prompt.
        reached: m1, the label margin of a unit head at p1.
        p: the prompt p1, (k,).
        largest: M, the largest norm of a token.
    """

    at_most: float
    reached: float
    p: Float64[np.ndarray, "k"]
    largest: float

    @property
    def relative_gap(self) -> float:
        """The gap (m1 − m0)/M (symbols: see the module), a lower bound of ‖v_r/r − v̄_mm‖ for a large radius r."""
        return (self.reached - self.at_most) / self.largest


def mixed_margins(joint: Joint, seed: int, *, quadrant: bool = False) -> MixedMargins | None:
    """Return m0, m1 and p1 (symbols: see the module); None if no head has a positive label margin at any tried prompt.

    If ATT-SVM(α) is feasible, m0 is min_i max_t a_it, a bound for any softmax weights.

    Args:
        joint: the joint problem.
        seed: the seed of the random prompts.
        quadrant: whether only prompts with (k_iα − k_it)·p ≥ 0 for all i and t are tried.
    """
    proof = max_margin(joint.keys, joint.alpha)
    outputs = joint.tokens @ joint.svm.direction
    at_most = float(outputs.max(axis=1).min())
    if isinstance(proof, Infeasible):
        certified = -math.inf
        for i, t in (pair for pair, weight in proof.exact.items() if weight > 0):
            others = float(outputs[i][joint.others[i]].max())
            certified = max(certified, others, float(outputs[i, joint.alpha[i]] + outputs[i, t]) / 2)
        at_most = min(at_most, certified)
    best: tuple[float, Float64[np.ndarray, "k"]] | None = None
    for p in _prompts(joint, seed):
        if quadrant and float((joint.rows @ p).min()) < 0:
            continue
        features = np.sum(softmax_weights(joint.keys, p)[..., None] * joint.tokens, axis=1)
        svm = label_svm(features)
        if not isinstance(svm, Infeasible):
            # Compute the label margin that this head attains, rather than trust the margin that the solver reports.
            reached = float((features @ svm.direction).min())
            if best is None or reached > best[0]:
                best = reached, p
    if best is None:
        return None
    return MixedMargins(at_most, best[0], best[1], float(np.linalg.norm(joint.tokens, axis=2).max()))


def _prompts(joint: Joint, seed: int) -> list[Float64[np.ndarray, "k"]]:
    k = joint.keys.shape[2]
    rows = joint.rows[joint.others]
    sizes = np.linalg.norm(rows, axis=1)
    axes = [row / size for row, size in zip(rows, sizes, strict=True) if size > 0]
    random = np.random.default_rng(seed).normal(size=(DIRECTIONS, k))
    axes += [] if k == 1 else list(random / np.linalg.norm(random, axis=1, keepdims=True))
    unit = 1 / float(sizes.max()) if sizes.max() > 0 else 1.0
    return [np.zeros(k)] + [sign * unit * norm * axis for axis in axes for norm in SCANNED for sign in (1, -1)]


def head_is_max_margin(case: Case, under_test: Implementation, *, quadrant: bool = False) -> Iterator[Claim]:
    """Yield the claim v_r/r → v̄_mm (symbols: see the module).

    The module's bound refutes it at r = 10⁶/M, for every R ≥ ‖p1‖.
    """
    joint = joint_of(case)
    mixed = None if joint is None else mixed_margins(joint, case.seed, quadrant=quadrant)
    name, rounding = "head-is-max-margin", NORM**-0.5
    if joint is None or mixed is None:
        reason = "v_mm does not exist, or no prompt that was tried allows a head of positive label margin"
        yield Claim(name, Form.EFFECTIVE, 0.0, rounding, LIMIT_FOLLOWED, undecided=reason)
        return
    detail = (
        f"‖v_r/r − v̄_mm‖ ≥ {mixed.relative_gap:.6g}: v̄_mm has label margin ≤ {mixed.at_most:.6g} at every p, another"
        f" head has {mixed.reached:.6g} at a p with ‖p‖ = {float(np.linalg.norm(mixed.p)):.6g}"
    )
    yield Claim(name, Form.EFFECTIVE, -max(mixed.relative_gap, 0.0), rounding, LIMIT_FOLLOWED, detail)
