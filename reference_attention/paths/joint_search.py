"""The joint minimiser at a radius, searched for from several starts; the risk alone says which one found it.

The joint risk has local minima, and the path from one start may end in one that selects other tokens. So at a few radii
on the way directions are tried at random, descent goes from the best of them and from where the branches so far have
got to, and the lowest few go on. No start knows where the theorems say that the path goes.

References: *Max-Margin Token Selection in Attention Mechanism*, Section 3, Theorems 5 and 6; :mod:`.joint_path`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from reference_attention.paths.joint import Joint, relative_log_risk
from reference_attention.paths.joint_newton import complement
from reference_attention.paths.joint_path import Branch, JointPath, Schedule, advanced, begun, path_of, settled

LEVELS = (1.0, 16.0, 256.0, 4096.0)
"""Sizes of the largest logits at which directions are tried."""
NEW, KEPT, LAST = 2, 4, 3
"""Directions that descent goes from at each level, branches that go on, and those that are followed to the end."""
APART = 1e-2
"""Branches whose logits differ by less than this are one."""


@dataclass(frozen=True, eq=False)
class Found:
    """What the search found.

    Attributes:
        path: the lowest pair, at one radius.
        risks: log L + rΓ of every branch that was followed to the end, the lowest first.
    """

    path: JointPath
    risks: tuple[float, ...]


def joint_minimiser(joint: Joint, schedule: Schedule, R: float, starts: Float64[np.ndarray, "m k"]) -> Found:
    """The pair of least risk over ‖v‖ ≤ r(R), ‖p‖ ≤ R that descent finds from those directions of the prompt.

    Args:
        schedule: R ↦ log r.
        starts: directions to begin with, in any order; the path begins at the first, at a small radius.
    """
    basis = complement(joint.svm.direction)
    unit = float(np.max(np.linalg.norm(joint.rows, axis=-1)))
    units = starts / np.linalg.norm(starts, axis=1, keepdims=True)
    branches: list[Branch] = []
    for level in LEVELS:
        here = min(level / unit, R)
        tried = units * here
        heads = np.zeros((len(tried), joint.tokens.shape[2]))
        risks = relative_log_risk(joint, schedule(here), heads, joint.log_weights(tried))
        best = np.argsort(np.where(np.isnan(risks), math.inf, risks), kind="stable")[: NEW if level > LEVELS[0] else 1]
        moved = [advanced(joint, basis, schedule, branch, here, final=False) for branch in branches]
        branches = _lowest([*moved, *(begun(joint, basis, schedule, here, tried[i]) for i in best)], unit, KEPT)
    ends = [advanced(joint, basis, schedule, branch, R, final=False) for branch in branches[:LAST]]
    ends = sorted(ends, key=lambda branch: branch.rank)
    return Found(path_of([settled(ends[0])]), tuple(branch.rank for branch in ends))


def _lowest(branches: list[Branch], unit: float, most: int) -> list[Branch]:
    """Those of least risk, each once."""
    kept: list[Branch] = []
    for branch in sorted(branches, key=lambda branch: branch.rank):
        if all(float(np.linalg.norm(branch.p - other.p)) * unit > APART for other in kept):
            kept.append(branch)
    return kept[:most]
