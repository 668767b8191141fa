"""Which next tokens training ends on, and why: the facts behind ``theorems explain`` of next-token data.

Reference: :mod:`theorems.next_token.ntp_extended_supports`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from generators.next_tokens import NextTokens
from reference_attention.exact import to_float
from reference_attention.next_token.compatibility import compatible
from reference_attention.next_token.extended_supports import Pair, separate_pairs, signed_multipliers, signed_rows
from reference_attention.svm.max_margin import Infeasible
from theorems.core.implementation import REFERENCE
from theorems.next_token.limits import Limits, certify_limits

SHOWN = 3
"""Contexts that are named as the reason of a tie, at most."""


@dataclass(frozen=True, eq=False)
class NextTokenEnds:
    """Where training on the data ends.

    Attributes:
        case: the data.
        limits: Ŝ, θ_mm, θ_⋆, all proven.
    """

    case: NextTokens
    limits: Limits

    @classmethod
    def of(cls, case: NextTokens) -> NextTokenEnds:
        """Of these data."""
        made = certify_limits(case.problem, REFERENCE)
        while True:
            try:
                next(made)
            except StopIteration as found:
                return cls(case, found.value)

    @property
    def separable(self) -> bool:
        """Whether Ŝ = S."""
        return self.limits.supports.separable(self.limits.problem)

    @cached_property
    def compatible(self) -> bool:
        """Whether one W has the log-odds of what followed."""
        return compatible(self.limits.problem)

    @cached_property
    def entropy(self) -> float:
        """What followed has this entropy, in nats."""
        problem = self.limits.problem
        p = problem.counts / problem.counts.sum(axis=1, keepdims=True)
        shares = problem.counts / problem.counts.sum()
        return float(-(shares * np.log(np.where(problem.supports, p, 1.0))).sum())

    @property
    def infimum(self) -> float:
        """inf CE."""
        return float(self.limits.minimum.value.mid())

    def ends_on(self, j: int) -> dict[str, float]:
        """The tokens that keep probability after context j, with the limit of it; the likeliest first."""
        shares = self.limits.minimum.shares[j]
        kept = [(float(shares[v]), int(v)) for v in np.flatnonzero(self.limits.split.sets[j])]
        return {self.case.alternative(j, v): share for share, v in sorted(kept, key=lambda pair: (-pair[0], pair[1]))}

    def ruled_out(self, j: int) -> list[str]:
        """The tokens whose probability tends to 0 after context j."""
        return [self.case.alternative(j, int(v)) for v in np.flatnonzero(self.limits.masked[j])]

    def tied(self, j: int) -> list[str]:
        """The tokens that never followed context j, and keep probability all the same."""
        extra = self.limits.split.sets[j] & ~self.limits.problem.supports[j]
        return [self.case.alternative(j, int(v)) for v in np.flatnonzero(extra)]

    def why_tied(self, j: int) -> list[str]:
        """Contexts that together keep what is tied after context j from being ruled out; one proof of possibly many."""
        problem = self.limits.problem
        extra = [(j, int(v)) for v in np.flatnonzero(self.limits.split.sets[j] & ~problem.supports[j])]
        reasons: dict[int, None] = {}
        rows = signed_rows(problem, problem.supports)
        for pair in extra:
            found = separate_pairs(problem, [pair])
            assert isinstance(found, Infeasible), "Ŝ is proven"
            weights: dict[Pair, Any] = signed_multipliers(rows, found.exact)
            reasons |= dict.fromkeys(i for (i, _), weight in weights.items() if weight != 0 and i != j)
        return [self.case.context(i) for i in reasons]

    @property
    def table(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """Columns and a row for each context."""
        rows: list[tuple[str, ...]] = []
        for j in range(self.limits.problem.contexts):
            kept = ", ".join(f"{name} {share:.3g}" for name, share in self.ends_on(j).items())
            names = [self.case.alternative(j, int(v)) for v in np.flatnonzero(self.limits.problem.supports[j])]
            why = self.why_tied(j)
            more = ", …" if len(why) > SHOWN else ""
            reason = f"{', '.join(self.tied(j))}: tied by {'; '.join(why[:SHOWN])}{more}" if self.tied(j) else ""
            rows.append((self.case.context(j), ", ".join(names), kept, ", ".join(self.ruled_out(j)), reason))
        return ("context", "followed by", "ends on, with probability", "rules out", "though it never followed"), rows

    @property
    def sentences(self) -> list[str]:
        """The whole in words."""
        limits = self.limits
        sizes = ", ".join(f"{name} = {size}" for name, size in self.case.sizes.items())
        said = [f"{sizes}; W has {limits.problem.dimension} entries."]
        if self.separable:
            said.append("Separable: what never followed a context can be ruled out after it, all at once (Ŝ = S).")
        else:
            said.append("Not separable: some tokens that never followed a context are tied to what did (Ŝ ≠ S).")
        gap = self.infimum - self.entropy
        if self.compatible:
            said.append("Compatible: one W has the log-odds of everything that followed.")
        else:
            said.append("Not compatible: no W has the log-odds of everything that followed.")
        exact = self.separable and self.compatible
        above = "the entropy of what followed" if exact else f"{gap:.4g} above the entropy of what followed"
        said.append(f"The loss falls to {self.infimum:.6g}, {above}, and does not attain it." if limits.apart else "")
        if limits.apart:
            tight = sum(1 for pair in self._margins if self._margins[pair] == 1)
            norm = to_float(limits.svm.norm_squared) ** 0.5
            said.append(
                f"W turns to W^mm: ‖W^mm‖ = {norm:.6g}, margin {1 / norm:.6g},"
                f" tight for {tight} of {len(self._margins)} pairs."
            )
        else:
            said.append(f"Nothing can be ruled out: the loss has a minimiser, of value {self.infimum:.6g}.")
        if limits.split.dimension:
            said.append(
                f"P_FW comes to W⋆ in dimension {limits.split.dimension}: ‖W⋆‖ ="
                f" {limits.minimum.norm:.6g}, least curvature {limits.minimum.curvature_below:.3g}."
            )
        return [sentence for sentence in said if sentence]

    @cached_property
    def _margins(self) -> dict[Pair, Any]:
        margins = self.limits.svm.margins(self.limits.problem)
        return {pair: margin for pair, margin in margins.items() if not self.limits.split.sets[pair]}

    def record(self) -> dict[str, Any]:
        """For JSON: rationals as text."""
        contexts = [
            {
                "context": self.case.context(j),
                "ends_on": self.ends_on(j),
                "rules_out": self.ruled_out(j),
                "tied": self.tied(j),
                "tied_by": self.why_tied(j) if self.tied(j) else [],
            }
            for j in range(self.limits.problem.contexts)
        ]
        return {
            "separable": self.separable,
            "compatible": self.compatible,
            "infimum": self.infimum,
            "entropy": self.entropy,
            "contexts": contexts,
            "theta_mm": list(map(str, self.limits.svm.point)),
            "theta_star": self.limits.minimum.floats.tolist(),
        }
