"""Pairs of head and prompt on the joint path at given radii, each followed from several starts.

The path is computed by local search from each start. The caller takes the pair of least :attr:`Pair.rank`, at each
radius or at the last radius.

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
    """The pair of head r v̄_mm + w and prompt p at one radius.

    Attributes:
        joint: the tokens, keys and α, and the solution of (SVM).
        log_r, R: the radii.
        w: the head minus r v̄_mm, (d,).
        p: the prompt, (k,).
        units: R divided by the unit of radii, which is 1/Θ or 1/(size of the rows).
    """

    joint: Joint
    log_r: float
    R: float
    w: Float64[np.ndarray, "d"]
    p: Float64[np.ndarray, "k"]
    units: float

    @cached_property
    def risk(self) -> float:
        """Return log L + rΓ, where Γ is the label margin of v̄_mm."""
        return float(relative_log_risk(self.joint, self.log_r, self.w, self.joint.log_weights(self.p)))

    @property
    def rank(self) -> float:
        """Return an upper bound of the risk, given the rounding of outputs; lower is better, and inf is worst."""
        most = self.risk + self.joint.output_rounding(self.w)
        return most if math.isfinite(most) else math.inf

    @property
    def lowest_margin(self) -> float:
        """Return min over i, t of (k_iα − k_it)·p."""
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
    """Return, for each start, the pair at each radius; starts are the direction ``first`` and two random directions.

    Args:
        joint: the tokens, keys and α, and the solution of (SVM).
        schedule: R ↦ log r.
        radii: increasing, in units of ``unit``.
        unit: the unit of the radii.
        first: a direction of the prompt, (k,).
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
