"""The curves in the pictures of a report: for each theorem about a limit, one case followed until the limit is visible.

The data are examples of the paper, so every report has the same pictures; the tables of the report list what was
verified.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from generators.case import Case
from generators.datasets import dataset_named
from reference_attention.paths.joint_path import joint_path
from reference_attention.paths.regularization_path import regularization_path
from reference_attention.paths.scheduled_direction import critical_ratio, scheduled_direction
from reference_attention.problem import Problem
from reference_attention.svm.max_margin import MaxMargin, max_margin
from reference_attention.training.flow import gradient_flow
from reference_attention.training.joint_descent import joint_descent
from theorems.core.implementation import REFERENCE
from theorems.curves.constraints import Constraints
from theorems.curves.reduced_program import closed_form, tangent_basis
from theorems.figures.limit_curve import Direction, Limit
from theorems.token_selection.joint_paths.joint_setup import joint_setup

RADII = np.concatenate([np.geomspace(0.1, 16.0, 24), np.geomspace(30.0, 1e6, 10)])
"""The norms at which points of the curves are computed: dense where the curves turn, then two per decade."""
STEPS, STEP = 2000, 0.1
"""The number and the length of the steps of joint descent, as in Figure 3."""


def _separate(problem: Problem, alpha: Direction | list[int] | None = None) -> MaxMargin:
    """Return the ATT-SVM solution p_mm for the tokens ``alpha``, by default the optimal tokens."""
    svm = max_margin(problem.exact_keys, problem.optimal if alpha is None else np.array(alpha))
    assert isinstance(svm, MaxMargin)
    return svm


def path() -> Limit:
    """Return the regularization path (Theorem 1) on two inputs that pull p in different directions, with its limit."""
    problem = dataset_named("figure-5").problem
    svm = _separate(problem)
    constraints = Constraints.of(problem, svm)
    y, _ = closed_form(constraints, tangent_basis(svm.direction, constraints.rows))
    minima = regularization_path(problem, RADII, max_margin=svm)
    offset = svm.norm * float(np.linalg.norm(y))
    return Limit("regularization path", "p_mm", "figure-5", minima.points, svm.direction, offset)


def flow() -> Limit:
    """Return the gradient flow (Theorem 2) from the start 0 on Figure 1(a)'s data, with its limit."""
    case = dataset_named("figure-1a")
    return _flow(case, _separate(case.problem), np.zeros(2), "p_mm")


def local_flow() -> Limit:
    """Return the gradient flow (Theorem 3) from the second start of Figure 8, with its limit."""
    case = dataset_named("figure-8")
    start = np.array(case.arrays["start_prompts"][1])
    return _flow(case, _separate(case.problem, [0, 1]), start, "p_mm(α)")


def _flow(case: Case, svm: MaxMargin, start: Direction, limit: str) -> Limit:
    """Return a gradient flow recorded at norms up to the largest of :data:`RADII`, with its limit."""
    near = np.geomspace(max(float(np.linalg.norm(start)), 0.05), 16.0, 60)
    record = np.append(near[1:], RADII[RADII > 16.0])
    flow = gradient_flow(case.problem, start, norm=float(RADII[-1]), record=record)
    return Limit("gradient flow", limit, case.name, np.vstack([start, flow.points]), svm.direction)


def joint() -> Limit:
    """Return the joint path (Theorem 5) for equal radii of head and prompt on Figure 3(a)'s data, with its limit."""
    return _joint("figure-3a", "p_mm", 1.0)


def relaxed_joint() -> Limit:
    """Return the joint path (Theorem 6) along r = 2c*R, c* the critical ratio, on data of Figure 3(b), with limit."""
    return _joint("figure-3b", "p_relax", 2.0)


def _joint(data: str, limit: str, share: float) -> Limit:
    """Return the joint path for a head's radius of share·c* times the prompt's, c* of Theorem 6, with its limit."""
    setup = joint_setup(dataset_named(data), REFERENCE)
    ratio = share * (critical_ratio(setup.joint, setup.target) or 1.0)
    minima = joint_path(setup.joint, lambda R: math.log(ratio * R), RADII, setup.separator.direction)
    return Limit("joint regularization path", limit, data, minima.prompts, setup.target.direction)


def joint_run() -> Limit:
    """Return normalized descent on head and prompt from the start of Figure 3(b), with its conjectured limit."""
    case = dataset_named("figure-3b")
    setup = joint_setup(case, REFERENCE)
    head, prompt = np.array(case.arrays["start_head"]), np.array(case.arrays["start_prompts"][0])
    run = joint_descent(
        setup.joint.tokens, setup.joint.keys, head, prompt, steps=STEPS, head_step=STEP, prompt_step=STEP
    )
    steps = np.unique(np.geomspace(1, STEPS, 200).astype(np.int64))
    limit = scheduled_direction(setup.joint, 1.0)
    return Limit("joint descent", "p(1)", "figure-3b", run.prompts[np.append(0, steps)], limit)


def sets() -> Limit:
    """Return the regularization path (Theorem 8) on the paper's example of two equally good tokens, with its limit."""
    problem = Problem([[[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]], [[1.0, 1.0, 0.0]])
    svm = _separate(problem, [0])
    minima = regularization_path(problem, RADII, alpha=np.array([0]), starts=np.array([[1.0, 0.0]]))
    return Limit("regularization path", "a solution of ATT-SVM'", "tokens (1, 0), (0, 1) and 0", minima.points, svm.p)


LIMITS: dict[str, Callable[[], Limit]] = {
    "theorem-1": path,
    "theorem-2": flow,
    "theorem-3": local_flow,
    "theorem-5": joint,
    "theorem-6": relaxed_joint,
    "theorem-8": sets,
    "conjecture-joint-descent": joint_run,
}
"""The functions that compute a curve with its limit, by the statement's id; none for Theorem 4, which excludes limits.
"""
