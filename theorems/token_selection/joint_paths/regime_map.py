"""The regime map of the joint regularization path: which schedules r(R) end at p_mm, at p_relax, or between these.

``theorems figures regime-map`` draws the map. The paper's Theorem 6 names the limit p_relax for any schedule, although
a slowly growing r leads to p_mm (:mod:`.theorem_6_relaxed_joint_path`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from generators.case import Case
from reference_attention.paths.joint_path import Schedule, joint_path, linear_schedule
from reference_attention.paths.scheduled_direction import critical_ratio, scheduled_direction
from reference_attention.problem import Dataset
from theorems.bounded import value_of
from theorems.core.claim import Undecided
from theorems.core.implementation import REFERENCE, Implementation
from theorems.token_selection.joint_paths.joint_constants import one_minus_cosine
from theorems.token_selection.joint_paths.joint_sets import LARGEST_EXPONENT
from theorems.token_selection.joint_paths.joint_setup import JointSetup, joint_setup

UNITS = 2.0**20
"""The value of RΘ_relax at the end of a path, for the radius R of the prompt and the margin Θ_relax of p̄_relax."""
SHARES = (0.125, 0.25, 0.5, 0.75, 1.0, 2.0, 4.0)
"""The ratios r/(c* R) of the linear schedules, where c* is the critical ratio of Theorem 6."""
Prompt = Float64[np.ndarray, "dk"]


@dataclass(frozen=True)
class Regime:
    """The end of the joint path (v, p) along one schedule r(R), ‖v‖ ≤ r, ‖p‖ ≤ R.

    Attributes:
        data: the name of the data.
        schedule: r as a function of R, as text.
        ratio: the limit of r/R.
        from_mm, from_relax, from_predicted: the distances of p/R from p̄_mm, from p̄_relax and from the limit p(c)
            predicted for c = ``ratio``, at the end.
        from_head: 1 − cos(v, v_mm) at the end.
    """

    data: str
    schedule: str
    ratio: float
    from_mm: float
    from_relax: float
    from_predicted: float
    from_head: float

    @property
    def ends_at(self) -> str:
        """Return "p_mm" or "p_relax", whichever the end is close to; "both", or "between" if it is close to neither."""
        near = 4 * max(self.from_predicted, 1 / UNITS)
        if min(self.from_mm, self.from_relax) > near:
            return "between"
        if max(self.from_mm, self.from_relax) <= near:
            return "both"
        return "p_mm" if self.from_mm < self.from_relax else "p_relax"


def regimes(case: Case, under_test: Implementation = REFERENCE) -> Iterator[Regime]:
    """Yield the end of the joint path for each schedule.

    Raises:
        ValueError: the case has no v_mm, p_mm or p_relax, Assumption C is not proven over the supports of v_mm, or
            no input other than these supports constrains the path.
    """
    try:
        setup = joint_setup(case.normalise(), under_test)
    except Undecided as error:
        raise ValueError(error.why) from None
    if setup.joint.svm.support.all():
        raise ValueError("every input is a support of v_mm, so p_relax is p_mm and every schedule ends there")
    critical = under_test[critical_ratio](setup.joint, setup.target)
    if critical == 0:
        raise ValueError(
            "c* = 0: every schedule with growing r ends at p_relax, because no non-support constrains the path"
        )
    margin, rate = setup.joint.svm.margin, setup.target.margin
    schedules: list[tuple[str, Schedule, float]] = [
        ("8/Γ fixed", lambda R: math.log(8 / margin), 0.0),
        ("sqrt(R)", lambda R: math.log(R) / 2 - math.log(margin), 0.0),
        *((f"{share:g} c* R", linear_schedule(share * critical), share * critical) for share in SHARES),
        ("exp(RΘ/2)", lambda R: max(math.log(R), rate * R / 2), math.inf),
    ]
    for name, schedule, ratio in schedules:
        predicted = under_test[scheduled_direction](setup.joint, min(ratio, 1e6))
        yield _regime(case.name, f"r = {name}", setup, schedule, ratio, predicted)


def _regime(data: str, name: str, setup: JointSetup, schedule: Schedule, ratio: float, predicted: Prompt) -> Regime:
    """Return the end of the joint path along one schedule; ``predicted`` is the limit that its ratio predicts."""
    R = UNITS / setup.target.margin
    start = setup.separator.direction + setup.target.direction
    path = joint_path(setup.joint, schedule, np.array([R]), start, most_steps=400)
    direction = path.prompts[0] / R
    radius = math.exp(min(path.log_head_radii[0], LARGEST_EXPONENT))
    return Regime(
        data,
        name,
        ratio,
        float(np.linalg.norm(direction - setup.separator.direction)),
        float(np.linalg.norm(direction - setup.target.direction)),
        float(np.linalg.norm(direction - predicted)),
        float(value_of(one_minus_cosine(setup.u, radius, path.offsets))[0]),
    )


def generate_case(seed: int) -> Case:
    """Return a random case like Figure 3(b)'s: of three inputs two are supports of v_mm; each second token is 0."""
    rng = np.random.default_rng(seed)
    h = rng.integers(2, 9, size=2) / 4
    spare = 1 + int(rng.integers(1, 9)) / 4
    X = np.zeros((3, 2, 2))
    X[:, 0] = [(h[0], 1.0), (h[1], -1.0), (int(rng.integers(1, 5)) / 8, spare)]
    data = Dataset(X, np.array([1.0, -1.0, 1.0]), np.array([0.0, 1.0]))
    return Case(data.problem, dataset=data, alpha=np.zeros(3, dtype=np.int64), name=f"generated {seed}")
