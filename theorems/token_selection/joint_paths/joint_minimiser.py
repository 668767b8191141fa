"""The pair (v, p) of head and prompt that minimises the risk over balls, with the claims that it is a minimiser.

The radius r of the head's ball is a given function of the radius R of the prompt's ball, the *schedule*.

References: *Max-Margin Token Selection in Attention Mechanism*, Section 3, Theorems 5 and 6.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float64
from numpy.linalg import norm

from reference_attention.floats import EPS
from reference_attention.paths.joint_path import JointPath, Schedule
from reference_attention.paths.joint_risk import Joint, excess_gradient, head_drops, relative_log_risk
from reference_attention.paths.joint_search import joint_minimiser
from theorems.bounded import exact
from theorems.core.claim import Claim, Ended, Form, NotANumber, Refuted, Undecided, Verdict, at_least, undecided_claim
from theorems.core.claim_name import premise
from theorems.core.implementation import Implementation
from theorems.core.tolerances import EXACT
from theorems.rounding.attention_at import Numbers
from theorems.token_selection.joint_paths.joint_setup import JointSetup, competitors

IN_THE_BALLS = premise("path-is-in-the-balls")
PATH_IS_LOWEST = premise("path-is-lowest")

LARGEST_UNITS = 2.0**28
"""The RΘ at which a minimiser is compared with its limit: logits have a rounding error of about eps RΘ = 6e-8."""
RESOLVED = 1.0
"""The amount by which a minimiser's log-excess risk may be above that of the best :func:`.joint_setup.competitors`.

At an input that is no support and whose weight q_i = 1 − s_iα stays between 0 and 1, float64 does not resolve the
exponent r (slack_i − q_i d_i) of the loss (:mod:`.joint_constants`) any better. The bounds use the excess risk of the
returned pair, so they hold for any pair.
"""
STARTS = 128
"""The number of directions from which the search for the minimiser starts."""
SELECTED = 16.0
"""The margin of p, in logits, above which α counts as selected at an input."""


@dataclass(frozen=True, eq=False)
class JointMinimiser:
    """The pair (r v̄_mm + w, p) of least risk that the implementation under test finds at ‖p‖ ≤ R, ‖v‖ ≤ r(R).

    The competitors, to which the pair's risk is compared, are the pairs (r v̄_mm, R p̄_c) with the prompts R p̄_c of
    :func:`.joint_setup.competitors`. Γ is the label margin of v_mm, z_it = Y_i x_it.

    Attributes:
        setup: the problem whose risk is minimised, with v_mm, p_mm and p_relax.
        under_test: the implementation that found the pair.
        schedule: the function R ↦ log r(R).
        R: the radius of the prompt.
        starts: the directions of prompts from which the search starts, (m, k).
        path: the path of one point that the implementation returned.
        claim: the name of the claim that is undecided where the pair is no minimiser.
    """

    setup: JointSetup
    under_test: Implementation
    schedule: Schedule
    R: float
    starts: Float64[np.ndarray, "m k"]
    path: JointPath
    claim: str

    @classmethod
    def of(
        cls,
        setup: JointSetup,
        under_test: Implementation,
        schedule: Schedule,
        R: float,
        starts: Float64[np.ndarray, "m k"],
        claim: str,
    ) -> JointMinimiser:
        """Run the search under test for the minimiser at radius R along the schedule; the arguments are attributes."""
        path = under_test[joint_minimiser](setup.joint, schedule, R, starts).path
        return cls(setup, under_test, schedule, R, starts, path, claim)

    def premises(self) -> Iterator[Claim]:
        """Yield the claims that the pair lies in the balls ‖v‖ ≤ r, ‖p‖ ≤ R, and that no competitor has less risk.

        Raises:
            Ended: the pair is no minimiser, or lies outside the balls.
            Undecided: rounding leaves no correct digits of the outputs of the pair's head, or with this head another
                token scores at least as much as α.
        """
        inside = self._lies_in_the_balls()
        yield inside
        if inside.verdict is Verdict.FALSIFIED:
            raise Ended(IN_THE_BALLS)
        above = self.above
        if above and self.under_test.replaces(joint_minimiser):
            search = joint_minimiser(self.setup.joint, self.schedule, self.R, self.starts).path
            if not replace(self, path=search).above:
                why = f"{above}; the reference finds a pair of lower risk"
                yield Claim(PATH_IS_LOWEST, Form.LIMIT, -math.inf, 0.0, EXACT, why)
                raise Ended(PATH_IS_LOWEST)
        if above:
            claim = undecided_claim(self.claim, above, Form.LIMIT)
            yield replace(claim, not_found=True, branch="no minimiser found: " + above.split(":")[0])
            raise Ended(self.claim)
        yield Claim(PATH_IS_LOWEST, Form.LIMIT, 0.0, 0.0, EXACT, branch=self._selection)
        if not has_digits(self.setup.joint, self.w):
            why = f"the head's offset of {np.linalg.norm(self.w):.3g} leaves no correct digits of its outputs"
            raise Undecided(self.claim, why, Form.LIMIT)
        sign, _ = self.drops
        if (sign[self.setup.joint.others] <= 0).any():
            why = "with the head of this pair another token scores at least as much as α, so the path does not select α"
            raise Undecided(self.claim, why, Form.LIMIT)

    def _lies_in_the_balls(self) -> Claim:
        """Return the claim ‖p‖ ≤ R and ‖v‖ ≤ r, which allows for the rounding of a point on a sphere.

        For v = r v̄_mm + w, ‖v‖ ≤ r is claimed as ⟨v̄_mm, w⟩/r + ‖w‖²/(2r²) ≤ 0.
        """
        path, radii = self.path, (self.R, self.log_r)
        shapes = path.prompts.shape, path.offsets.shape
        has = (float(path.radii[0]), float(path.log_head_radii[0])) if len(path.radii) == 1 else ()
        if shapes != ((1, self.starts.shape[1]), (1, self.setup.joint.tokens.shape[2])) or has != radii:
            raise Refuted(
                IN_THE_BALLS,
                f"prompts and heads of shapes {shapes} at (R, log r) = {has} instead of one of each at {radii}",
                Form.EXACT,
            )
        if not (np.isfinite(self.p).all() and np.isfinite(self.w).all()):
            raise NotANumber(IN_THE_BALLS, "the pair (v, p) of the path has an entry that is not finite", Form.EXACT)
        share = exact(self.w) * math.exp(-self.log_r)
        beyond = np.vecdot(exact(self.setup.joint.svm.direction), share) + np.vecdot(share, share) / 2
        longer = norm(exact(self.p) / self.R) - 1
        room = 16 * (self.p.size + self.w.size) * EPS
        return at_least(IN_THE_BALLS, Form.EXACT, room, np.stack([longer, beyond]), scale=1.0, points="ball")

    @property
    def log_r(self) -> float:
        """The logarithm of the head's radius r."""
        return self.schedule(self.R)

    @property
    def w(self) -> Float64[np.ndarray, "d"]:
        """The offset v − r v̄_mm of the head."""
        return np.asarray(self.path.offsets[0])

    @property
    def p(self) -> Float64[np.ndarray, "k"]:
        """The prompt p."""
        return np.asarray(self.path.prompts[0])

    @property
    def residual(self) -> float:
        """The norm that the search reports of the gradient at its pair (v, p), projected on the spheres of v and p."""
        return float(self.path.residuals[0])

    @property
    def margins(self) -> Numbers:
        """The margins R m_i = min_t (k_iα − k_it)·p, (n,)."""
        return self.setup.margins(self.p)

    @property
    def cosine(self) -> Numbers:
        """The number ⟨p, p̄_relax⟩/R, a lower bound of the cosine of p and p_relax because ‖p‖ ≤ R."""
        return exact(self.p) @ self.setup.towards / self.R

    @property
    def slip(self) -> float:
        """The rounding error of the difference of two log-excess risks: twice 2 eps (k + 8) R max‖k_iα − k_it‖."""
        return 4 * EPS * (self.starts.shape[1] + 8) * self.R * self.setup.joint.longest_row

    @property
    def drops(self) -> tuple[Float64[np.ndarray, "n T"], Float64[np.ndarray, "n T"]]:
        """The signs and logarithms of the drops v·(z_iα − z_it) of the head's outputs, (n, T) each."""
        return head_drops(self.setup.joint, self.log_r, self.w)

    @property
    def log_risk(self) -> float:
        """The logarithm of the pair's risk divided by e^{−rΓ}, log L + rΓ."""
        joint = self.setup.joint
        return float(relative_log_risk(joint, self.log_r, self.w, joint.log_weights(self.p)))

    @cached_property
    def log_excess(self) -> float:
        """The pair's log-excess risk log n(L(v, p) − L_α(v)) + rΓ, with the risk L_α(v) of selecting α."""
        return self._log_excess_at(self.p)

    @cached_property
    def least_competing(self) -> float:
        """The log-excess risk of the pair's head with the best competing prompt R p̄_c in place of p."""
        return min(self._log_excess_at(c) for c in competitors(self.setup, self.R))

    @cached_property
    def above(self) -> str:
        """The reason why the pair is no minimiser: a competitor has a lower risk, as a pair or with the pair's head.

        The text is empty if no competitor has.
        """
        beyond = self._pair_excess
        if self.log_excess <= self.least_competing + self.slip + RESOLVED and beyond <= self.slip:
            return ""
        unit = self.setup.joint.longest_row
        lowest = float(np.min(np.where(self.setup.joint.others, self.setup.joint.rows @ self.p, np.inf)))
        convergence = "in distress" if self.residual > 1e-6 else "local"
        kind = "another selection" if lowest < -1e-6 * unit * self.R else convergence
        return (
            f"{kind}: log-excess {self.log_excess:.6g}, the competitor's {self.least_competing:.6g}; log-risk"
            f" {beyond:.6g} above that of (r v̄_mm, R p̄_c), gradient {self.residual:.3g}"
        )

    def _log_excess_at(self, p: Float64[np.ndarray, "k"]) -> float:
        joint = self.setup.joint
        return excess_gradient(joint, self.log_r, self.w, p)[0] + math.log(joint.tokens.shape[0])

    @property
    def _pair_excess(self) -> float:
        """The difference of log L at the pair (r v̄_mm + w, p) and at the best competitor, ≤ 0 for a minimiser.

        The bounds of :class:`.LimitBounds` hold for any head, but they are O(1)/R only if the head's outputs stay
        within O(1) of rΓ.
        """
        joint, zero_offset = self.setup.joint, np.zeros(self.w.size)
        prompts = competitors(self.setup, self.R)
        pairs = (relative_log_risk(joint, self.log_r, zero_offset, joint.log_weights(c)) for c in prompts)
        return self.log_risk - min(float(x) for x in pairs)

    @property
    def _selection(self) -> str:
        """A description of whether the prompt selects α at the inputs that are no supports; empty if there are none."""
        others: Bool[np.ndarray, "n"] = ~self.setup.joint.svm.support
        if not others.any():
            return ""
        margins = np.min(np.where(self.setup.joint.others, self.setup.joint.rows @ self.p, np.inf), axis=1)[others]
        return "every input selected" if margins.min() > SELECTED else "an input at its boundary"


def has_digits(joint: Joint, w: Float64[np.ndarray, "d"]) -> bool:
    """Return whether the rounding error of the outputs w·z for tokens z of the data is at most 2⁻⁶."""
    return joint.output_rounding(w) <= 2.0**-6
