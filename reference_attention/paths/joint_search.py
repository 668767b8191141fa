"""The minimiser of the joint risk at a radius, searched for from several starts and chosen only by its risk.

The joint risk has several local minima, and the path from a single start may end in a local minimum that selects other
tokens. So at some radii on the way given directions of the prompt are tried. Descents start from the best of them and
from the end points of the previous branches (followed local minimisers), and the branches of lowest risk are continued.
No start uses the limit that the theorems predict.

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
"""Levels: the sizes of the largest logit at which directions are tried, one radius for each."""
NEW, KEPT, LAST = 2, 4, 3
"""Largest numbers of new directions per level from which to descend, of branches kept per level, and of branches
followed to the final radius."""
SAME = 1e-9
"""Difference below which two logarithms of risks count as equal."""
INWARD = 8
"""Number of directions that are also moved until they select α, since the prompts that select α may form a narrow
cone."""
DEPTH = 2.0**-4
"""Least margin (k_iα − k_it)·u, in units of ‖k_iα − k_it‖, to which a unit vector u is moved so that it selects α."""
APART = 1e-2
"""Difference of logits below which two branches count as the same branch."""


@dataclass(frozen=True, eq=False)
class JointMinimum:
    """The result of :func:`joint_minimiser`.

    Attributes:
        path: the pair of head and prompt of least risk, as a path of one radius.
        risks: log L + rΓ plus a bound of its rounding error, for every branch that was followed to the final radius,
            the lowest first.
    """

    path: JointPath
    risks: tuple[float, ...]


def joint_minimiser(joint: Joint, schedule: Schedule, R: float, starts: Float64[np.ndarray, "m k"]) -> JointMinimum:
    """Return the pair (v, p) of least risk with ‖v‖ ≤ r(R), ‖p‖ ≤ R that descents reach from directions of the prompt.

    Args:
        joint: the tokens, keys and chosen tokens α, and the solution of the head's SVM.
        schedule: the function R ↦ log r.
        R: the radius.
        starts: directions of the prompt to start from, (m, k).
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
    # Where the prompt does not influence the digits of L, all branches have equal risk; then a small remaining gradient
    # marks a minimiser.
    equal = [polish_branch(branch) for branch in ends if branch.rank <= ends[0].rank + SAME]
    return JointMinimum(
        path_of([min(equal, key=lambda branch: branch.residual > LOST)]), tuple(branch.rank for branch in ends)
    )


def _best(
    joint: Joint, schedule: Schedule, prompts: Float64[np.ndarray, "m k"], most: int
) -> list[Float64[np.ndarray, "k"]]:
    """Return the ``most`` prompts of least risk for the head r v̄_mm."""
    if not len(prompts):
        return []
    heads = np.zeros((len(prompts), joint.tokens.shape[2]))
    risks = relative_log_risk(joint, schedule(float(np.linalg.norm(prompts[0]))), heads, joint.log_weights(prompts))
    return [prompts[i] for i in np.argsort(np.where(np.isnan(risks), math.inf, risks), kind="stable")[:most]]


def selecting(joint: Joint, u: Float64[np.ndarray, "k"]) -> Float64[np.ndarray, "m k"]:
    """Return the direction of the point nearest to the unit vector u that selects α with a margin, shape (1, k).

    The result has no row if no prompt selects α. If the cone of directions that select α is narrow, the result is near
    the max-margin direction, whatever u is. That biases only the start of the search, not its result, which is chosen
    by the risk.
    """
    rows = joint.rows[joint.others]
    offset = least_norm(rows, DEPTH * np.linalg.norm(rows, axis=1) - rows @ u)
    none = np.zeros((0, u.size))
    if offset is None or not (rows @ (u + offset) > 0).all():
        return none
    return (u + offset)[None] / np.linalg.norm(u + offset)


def _lowest(branches: list[Branch], unit: float, most: int) -> list[Branch]:
    """Return the ``most`` branches of least risk, without repetitions; ``unit`` is max ‖k_iα − k_it‖."""
    distinct: list[Branch] = []
    for branch in sorted(branches, key=lambda branch: branch.rank):
        if all(float(np.linalg.norm(branch.p - other.p)) * unit > APART for other in distinct):
            distinct.append(branch)
    return distinct[:most]
