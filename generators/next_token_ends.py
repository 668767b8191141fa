"""The next tokens that training ends on, and why: the answer of ``theorems explain`` for next-token data.

References: arXiv 2402.18551; the statement ntp-extended-supports.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np

from reference_attention.exact import to_float
from reference_attention.next_token.compatibility import compatible
from reference_attention.next_token.extended_supports import (
    ExtendedSupports,
    Pair,
    extended_supports,
    separate_pairs,
    signed_multipliers,
    signed_rows,
)
from reference_attention.next_token.finite_minimum import FiniteMinimum, finite_minimum
from reference_attention.next_token.master_problem import MasterProblem
from reference_attention.next_token.next_token_svm import NextTokenSvm, next_token_svm
from reference_attention.next_token.split import Split
from reference_attention.svm.max_margin import Infeasible

SHOWN = 3
"""The largest number of contexts that are named as the reason of a tie."""
MOST_SHOWN = 30
"""The largest number of contexts with a sentence each."""


@runtime_checkable
class Named(Protocol):
    """Next-token data whose contexts and alternatives have names."""

    @property
    def problem(self) -> MasterProblem:
        """Contexts, alternatives, counts."""

    def context(self, j: int) -> str:
        """Return the name of context j."""

    def alternative(self, j: int, v: int) -> str:
        """Return the name of alternative v of context j."""


@dataclass(frozen=True, eq=False)
class NextTokenEnds:
    """The limit of training on the data.

    Attributes:
        case: the data.
        supports: the extended supports Ŝ.
        svm: the max-margin solution θ_mm.
        minimum: the finite minimum θ_⋆.
    """

    case: Named
    supports: ExtendedSupports
    svm: NextTokenSvm
    minimum: FiniteMinimum

    @classmethod
    def of(cls, case: Named) -> NextTokenEnds:
        """Compute the limit of training on these data."""
        supports = extended_supports(case.problem)
        svm = next_token_svm(case.problem, supports.sets)
        assert isinstance(svm, NextTokenSvm), "Ŝ is proven"
        return cls(case, supports, svm, finite_minimum(Split.of(case.problem, supports.sets)))

    @property
    def problem(self) -> MasterProblem:
        """Contexts, alternatives, counts."""
        return self.case.problem

    @property
    def separable(self) -> bool:
        """Return whether Ŝ = S."""
        return self.supports.separable(self.problem)

    @cached_property
    def compatible(self) -> bool:
        """Return whether some W has the log-odds of what followed."""
        return compatible(self.problem)

    @cached_property
    def entropy(self) -> float:
        """The entropy of what followed, in nats."""
        problem = self.problem
        p = problem.counts / problem.counts.sum(axis=1, keepdims=True)
        shares = problem.counts / problem.counts.sum()
        return float(-(shares * np.log(np.where(problem.supports, p, 1.0))).sum())

    @property
    def infimum(self) -> float:
        """The infimum of the cross-entropy, inf CE."""
        return float(self.minimum.value.mid())

    def ends_on(self, j: int) -> dict[str, float]:
        """Return the tokens that keep probability after context j, with the limits of it; the likeliest token first."""
        shares = self.minimum.shares[j]
        kept = [(float(shares[v]), int(v)) for v in np.flatnonzero(self.supports.sets[j])]
        return {self.case.alternative(j, v): share for share, v in sorted(kept, key=lambda pair: (-pair[0], pair[1]))}

    def exclusions(self, j: int) -> list[str]:
        """Return the tokens whose probability tends to 0 after context j."""
        return [self.case.alternative(j, int(v)) for v in np.flatnonzero(self.minimum.split.others[j])]

    def ties(self, j: int) -> list[str]:
        """Return the tokens that never followed context j, and keep probability all the same."""
        extra = self.supports.sets[j] & ~self.problem.supports[j]
        return [self.case.alternative(j, int(v)) for v in np.flatnonzero(extra)]

    def why_tied(self, j: int) -> list[str]:
        """Return contexts that together keep tokens tied after context j from being ruled out.

        They come from one proof of possibly many.
        """
        problem = self.problem
        extra = [(j, int(v)) for v in np.flatnonzero(self.supports.sets[j] & ~problem.supports[j])]
        reasons: dict[int, None] = {}
        rows = signed_rows(problem, problem.supports)
        for pair in extra:
            solution = separate_pairs(problem, [pair])
            assert isinstance(solution, Infeasible), "Ŝ is proven"
            weights: dict[Pair, Any] = signed_multipliers(rows, solution.exact)
            reasons |= dict.fromkeys(i for (i, _), weight in weights.items() if weight != 0 and i != j)
        return [self.case.context(i) for i in reasons]

    def context_sentence(self, j: int) -> str:
        """Return a sentence that says what training learns of context j."""
        followed = ", ".join(self.case.alternative(j, int(v)) for v in np.flatnonzero(self.problem.supports[j]))
        kept = ", ".join(f"{name} {share:.3g}" for name, share in self.ends_on(j).items())
        said = f"After {self.case.context(j)} (followed by {followed}) it ends on {kept}"
        said += f"; ruled out: {', '.join(self.exclusions(j))}." if self.exclusions(j) else "."
        if self.ties(j):
            why = self.why_tied(j)
            more = " and others" if len(why) > SHOWN else ""
            said += f" {', '.join(self.ties(j))} never followed it, and is tied by {'; '.join(why[:SHOWN])}{more}."
        return said

    @property
    def sentences(self) -> list[str]:
        """The whole answer in words, then context by context."""
        said = [self.context_sentence(j) for j in range(self.problem.contexts)]
        rest = len(said) - MOST_SHOWN
        more = [f"… {rest} more"] if rest > 0 else []
        return [self._summary(), " ".join(self._limits()), *said[:MOST_SHOWN], *more]

    def _summary(self) -> str:
        if self.separable:
            said = "Separable: what never followed a context can be ruled out after it, all at once (Ŝ = S). "
        else:
            said = "Not separable: some tokens that never followed a context are tied to what did (Ŝ ≠ S). "
        attained = "one W has" if self.compatible else "no W has"
        said += f"{'C' if self.compatible else 'Not c'}ompatible: {attained} the log-odds of what followed."
        return said

    def _limits(self) -> Iterator[str]:
        gap = self.infimum - self.entropy
        exact = self.separable and self.compatible
        where = "the entropy of what followed" if exact else f"{gap:.4g} above the entropy of what followed"
        if self._margins:
            tight, of = sum(margin == 1 for margin in self._margins.values()), len(self._margins)
            norm = to_float(self.svm.norm_squared) ** 0.5
            yield f"The loss falls to {self.infimum:.6g}, {where}, and does not attain it."
            yield f"W turns to W^mm, of margin 1/‖W^mm‖ = {1 / norm:.6g}, tight for {tight} of {of} pairs."
        else:
            yield f"Nothing can be ruled out: the loss has a minimiser, of value {self.infimum:.6g}, {where}."
        if r := self.minimum.split.dimension:
            yield f"Its part in F, of dimension {r}, comes to W⋆, ‖W⋆‖ = {self.minimum.norm:.6g}."

    @cached_property
    def _margins(self) -> dict[Pair, Any]:
        margins = self.svm.margins(self.problem)
        return {pair: margin for pair, margin in margins.items() if not self.supports.sets[pair]}
