"""Pairs of head and prompt on the joint path at given radii, each followed from several starts.

The path is computed by local search from each start. The caller takes the pair with the least :attr:`Pair.rank`, at
each radius or at the last radius only.

References: *Max-Margin Token Selection in Attention Mechanism*, Section 3, Theorems 5 and 6; :mod:`.joint_path`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float64

from reference_attention.paths.joint_path import Schedule, joint_path
from reference_attention.paths.joint_risk import Joint, relative_log_risk


@dataclass(frozen=True, eq=False)
class Pair:
    """A head v = r v̄_mm + w of norm r and a prompt p of norm R, with v̄_mm the direction of the head's SVM solution.

    Attributes:
        joint: the tokens, keys and chosen tokens α, and the solution of the head's SVM.
        log_r, R: log r, and R.
        w: the offset w of the head, (d,).
        p: the prompt, (k,).
        units: R divided by the unit in which the caller gave the radii.
    """

    joint: Joint
    log_r: float
    R: float
    w: Float64[np.ndarray, "d"]
    p: Float64[np.ndarray, "k"]
    units: float

    @cached_property
    def risk(self) -> float:
        """Return log L(v, p) + rΓ, where Γ is the label margin of v̄_mm."""
        return float(relative_log_risk(self.joint, self.log_r, self.w, self.joint.log_weights(self.p)))

    @property
    def rank(self) -> float:
        """Return :attr:`risk` plus a bound of its rounding error, by which pairs are compared; inf if not finite."""
        most = self.risk + self.joint.output_rounding(self.w)
        return most if math.isfinite(most) else math.inf

    @property
    def lowest_margin(self) -> float:
        """Return the least margin (k_iα − k_it)·p over all inputs i and tokens t ≠ α."""
        rows = self.joint.rows @ self.p
        return float(rows[self.joint.others].min())


def follow_from(
    joint: Joint,
    schedule: Schedule,
    radii: Sequence[float],
    unit: float,
    first: Float64[np.ndarray, "k"],
    seed: int,
) -> list[list[Pair]]:
    """Return for each of three starts, ``first`` and two random directions of the prompt, the pair at each radius.

    Args:
        joint: the tokens, keys and chosen tokens α, and the solution of the head's SVM.
        schedule: the function R ↦ log r.
        radii: the radii R divided by ``unit``, increasing.
        unit: the unit of the radii.
        first: the first start, a direction of the prompt, (k,).
        seed: seed of the random starts.
    """
    R = np.array(radii) * unit
    starts = [first, *np.random.default_rng(seed).normal(size=(2, joint.keys.shape[2]))]
    paths = [joint_path(joint, schedule, R, start) for start in starts]
    return [
        [
            Pair(joint, schedule(norm), norm, w, p, units)
            for norm, w, p, units in zip(R.tolist(), path.offsets, path.prompts, radii, strict=True)
        ]
        for path in paths
    ]
