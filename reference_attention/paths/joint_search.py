"""The joint minimiser at a radius, searched for from several starts and chosen only by its risk.

The joint risk has local minima, and the path from a single start may end in one that selects other tokens. So at a few
radii on the way random directions are tried, descent starts from the best of them and from the end points of the
branches so far, and the lowest few are continued. No start uses the limit that the theorems predict.

References: *Max-Margin Token Selection in Attention Mechanism*, Section 3, Theorems 5 and 6; :mod:`.joint_path`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from reference_attention.paths.joint_newton import complement
from reference_attention.paths.joint_path import (
    LOST,
    Branch,
    JointPath,
    Schedule,
    advance_branch,
    begin_branch,
    path_of,
    polish_branch,
)
from reference_attention.paths.joint_risk import Joint, relative_log_risk
from reference_attention.paths.scheduled_direction import least_norm

LEVELS = (1.0, 16.0, 256.0, 4096.0, 2.0**18)
"""Sizes of the largest logits at which directions are tried."""
NEW, KEPT, LAST = 2, 4, 3
"""Number of new directions per level from which to descend; of branches kept per level; of branches followed to the
end."""
SAME = 1e-9
"""Logarithms of risks that differ by less than this count as equal."""
INWARD = 8
"""Number of directions that are also moved until they select α, since random prompts rarely lie in a narrow cone."""
DEPTH = 2.0**-4
"""Least margin of a unit vector after it is moved until it selects α, in units of the norm of the row."""
APART = 1e-2
"""Branches whose logits differ by less than this count as the same branch."""


@dataclass(frozen=True, eq=False)
class JointMinimum:
    """The result of the search.

    Attributes:
        path: the lowest pair, at one radius.
        risks: log L + rΓ of every branch that was followed to the end, the lowest first.
    """

    path: JointPath
    risks: tuple[float, ...]


def joint_minimiser(joint: Joint, schedule: Schedule, R: float, starts: Float64[np.ndarray, "m k"]) -> JointMinimum:
    """Return the pair of least risk over ‖v‖ ≤ r(R), ‖p‖ ≤ R that descent reaches from directions of the prompt.

    Args:
        joint: the tokens, keys and α, and the solution of (SVM).
        schedule: R ↦ log r.
        R: the radius.
        starts: directions to begin with, in any order; the path begins at the first, at a small radius.
    """
    basis = complement(joint.svm.direction)
    unit = joint.longest_row
    units = np.array([joint.unit_prompt(start) for start in starts])
    inward = np.concatenate([selecting(joint, u) for u in units[:INWARD]])
    branches: list[Branch] = []
    for level in LEVELS:
        radius = min(level / unit, R)
        new = [*_best(joint, schedule, radius * units, NEW if level > LEVELS[0] else 1)]
        new += _best(joint, schedule, radius * inward, 1)
        advanced = [advance_branch(joint, basis, schedule, branch, radius, final=False) for branch in branches]
        branches = _lowest([*advanced, *(begin_branch(joint, basis, schedule, radius, p) for p in new)], unit, KEPT)
    ends = [advance_branch(joint, basis, schedule, branch, R, final=False) for branch in branches[:LAST]]
    ends = sorted(ends, key=lambda branch: branch.rank)
    # Where the prompt has no influence on the digits of L, all branches have equal risk; a small residual marks a
    # minimiser.
    equal = [polish_branch(branch) for branch in ends if branch.rank <= ends[0].rank + SAME]
    return JointMinimum(
        path_of([min(equal, key=lambda branch: branch.residual > LOST)]), tuple(branch.rank for branch in ends)
    )


def _best(
    joint: Joint, schedule: Schedule, prompts: Float64[np.ndarray, "m k"], most: int
) -> list[Float64[np.ndarray, "k"]]:
    """Return the prompts of least risk for the head r v̄_mm."""
    if not len(prompts):
        return []
    heads = np.zeros((len(prompts), joint.tokens.shape[2]))
    risks = relative_log_risk(joint, schedule(float(np.linalg.norm(prompts[0]))), heads, joint.log_weights(prompts))
    return [prompts[i] for i in np.argsort(np.where(np.isnan(risks), math.inf, risks), kind="stable")[:most]]


def selecting(joint: Joint, u: Float64[np.ndarray, "k"]) -> Float64[np.ndarray, "m k"]:
    """Return the direction nearest to a unit vector u among those that select α with a margin, shape (1, k).

    The array has no row if no prompt selects α. If the cone of directions that select α is too narrow for the margin
    :data:`DEPTH`, the result is the max-margin direction, whatever u is. That biases only the start of the search, not
    its result, which is chosen by the risk.
    """
    rows = joint.rows[joint.others]
    offset = least_norm(rows, DEPTH * np.linalg.norm(rows, axis=1) - rows @ u)
    none = np.zeros((0, u.size))
    if offset is None or not (rows @ (u + offset) > 0).all():
        return none
    return (u + offset)[None] / np.linalg.norm(u + offset)


def _lowest(branches: list[Branch], unit: float, most: int) -> list[Branch]:
    """Return the branches of least risk, without repetition."""
    distinct: list[Branch] = []
    for branch in sorted(branches, key=lambda branch: branch.rank):
        if all(float(np.linalg.norm(branch.p - other.p)) * unit > APART for other in distinct):
            distinct.append(branch)
    return distinct[:most]
