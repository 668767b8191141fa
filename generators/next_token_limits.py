"""The limits of training on next-token data, with reasons, as ``theorems explain`` prints them.

The support S_j of a context j is the set of observed next tokens. The extended support Ŝ_j ⊇ S_j has all alternatives
(possible next tokens) that keep probability in the limit; training rules out the others.

References: arXiv 2402.18551; the statement ntp-extended-supports.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np
from flint import fmpq

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
from reference_attention.next_token.subspace_split import Split
from reference_attention.svm.max_margin import Infeasible

SHOWN = 3
"""The largest number of contexts that a sentence names as the reason why a token is not ruled out."""
MOST_SHOWN = 30
"""The largest number of contexts that get a sentence each."""
MOST_NAMED = 8
"""The number of tokens shown of a long list; a list with at most one token more is shown in full."""


@runtime_checkable
class NamedContexts(Protocol):
    """Next-token data whose contexts and alternatives have names."""

    @property
    def parts(self) -> tuple[tuple[tuple[int, ...], MasterProblem], ...]:
        """The subproblems that share no coordinate of W, each with the indices of its contexts."""

    def context(self, j: int) -> str:
        """Return the name of context j."""

    def alternative(self, j: int, v: int) -> str:
        """Return the name of alternative v of context j."""


@dataclass(frozen=True, eq=False)
class PartLimits:
    """The limit of training on contexts that share no coordinate of W with other contexts.

    Attributes:
        contexts: the indices of the contexts in the data.
        problem: the contexts, with their alternatives and counts.
        supports: the extended supports Ŝ of the contexts.
        svm: the max-margin solution θ_mm, whose direction W takes in the limit.
        minimum: the minimum θ_⋆ of the loss in the subspace F, the limit of the part of W in F.
    """

    contexts: tuple[int, ...]
    problem: MasterProblem
    supports: ExtendedSupports
    svm: NextTokenSvm
    minimum: FiniteMinimum

    @classmethod
    def of(cls, contexts: tuple[int, ...], problem: MasterProblem) -> PartLimits:
        """Compute the limit of training on the problem of the given contexts."""
        supports = extended_supports(problem)
        svm = next_token_svm(problem, supports.sets)
        assert isinstance(svm, NextTokenSvm), "Ŝ is proven"
        return cls(contexts, problem, supports, svm, finite_minimum(Split.of(problem, supports.sets)))

    @cached_property
    def margins(self) -> dict[Pair, Any]:
        """The margins of the alternatives that training rules out, by (context, alternative)."""
        margins = self.svm.margins(self.problem)
        return {pair: margin for pair, margin in margins.items() if not self.supports.sets[pair]}


@dataclass(frozen=True, eq=False)
class NextTokenLimits:
    """The limit of training on next-token data.

    Attributes:
        case: the data.
        parts: the limits of the subproblems that share no coordinate of W.
    """

    case: NamedContexts
    parts: tuple[PartLimits, ...]

    @classmethod
    def of(cls, case: NamedContexts) -> NextTokenLimits:
        """Compute the limit of training on the data."""
        return cls(case, tuple(PartLimits.of(contexts, problem) for contexts, problem in case.parts))

    @cached_property
    def _at(self) -> dict[int, tuple[PartLimits, int]]:
        """For each context, the part that contains the context, and the context's index in that part."""
        return dict(sorted((j, (part, k)) for part in self.parts for k, j in enumerate(part.contexts)))

    @property
    def separable(self) -> bool:
        """Return whether the data are separable: the extended supports Ŝ are the supports S."""
        return all(part.supports.separable(part.problem) for part in self.parts)

    @cached_property
    def compatible(self) -> bool:
        """Return whether some W attains the log-odds of the observed next tokens."""
        return all(compatible(part.problem) for part in self.parts)

    @cached_property
    def norm(self) -> float:
        """The norm of the max-margin solution, ‖θ_mm‖; 0 if nothing is ruled out."""
        return float(to_float(sum((part.svm.norm_squared for part in self.parts), fmpq(0))) ** 0.5)

    @cached_property
    def entropy(self) -> float:
        """The entropy of the observed next tokens, in nats."""
        return self._weighted(_entropy(part.problem) for part in self.parts)

    @property
    def infimum(self) -> float:
        """The infimum of the cross-entropy over all W."""
        return self._weighted(float(part.minimum.value.mid()) for part in self.parts)

    def _weighted(self, values: Iterable[float]) -> float:
        """Return the mean of ``values``, one for each part, weighted by how often the part's contexts occur."""
        sizes = [int(part.problem.counts.sum()) for part in self.parts]
        return sum(size * value for size, value in zip(sizes, values, strict=True)) / sum(sizes)

    def ends_on(self, j: int) -> dict[str, float]:
        """Return the positive limit probabilities of tokens after context j, by token, in decreasing order."""
        part, k = self._at[j]
        shares = part.minimum.shares[k]
        tokens_with_share = [(float(shares[v]), int(v)) for v in np.flatnonzero(part.supports.sets[k])]
        return {
            self.case.alternative(j, v): share
            for share, v in sorted(tokens_with_share, key=lambda pair: (-pair[0], pair[1]))
        }

    def exclusions(self, j: int) -> list[str]:
        """Return the tokens whose probability tends to 0 after context j."""
        part, k = self._at[j]
        return [self.case.alternative(j, int(v)) for v in np.flatnonzero(part.minimum.split.others[k])]

    def ties(self, j: int) -> list[str]:
        """Return the tokens that never followed context j, but have a positive limit probability."""
        part, k = self._at[j]
        extra = part.supports.sets[k] & ~part.problem.supports[k]
        return [self.case.alternative(j, int(v)) for v in np.flatnonzero(extra)]

    def why_tied(self, j: int) -> list[str]:
        """Return contexts that together prove that no W rules out the tokens of :meth:`ties` after context j.

        These contexts occur in the proof that was found; other proofs may exist.
        """
        part, k = self._at[j]
        problem = part.problem
        extra = [(k, int(v)) for v in np.flatnonzero(part.supports.sets[k] & ~problem.supports[k])]
        reasons: dict[int, None] = {}
        rows = signed_rows(problem, problem.supports)
        for pair in extra:
            solution = separate_pairs(problem, [pair])
            assert isinstance(solution, Infeasible), "Ŝ is proven"
            weights: dict[Pair, Any] = signed_multipliers(rows, solution.exact)
            reasons |= dict.fromkeys(i for (i, _), weight in weights.items() if weight != 0 and i != k)
        return [self.case.context(part.contexts[i]) for i in reasons]

    def context_sentence(self, j: int) -> str:
        """Return a sentence on the limit of the predictions after context j."""
        part, k = self._at[j]
        followed = [self.case.alternative(j, int(v)) for v in np.flatnonzero(part.problem.supports[k])]
        ends = [f"{name} {share:.3g}" for name, share in self.ends_on(j).items()]
        sentence = f"After {self.case.context(j)} (followed by {_listed(followed)}) predictions tend to {_listed(ends)}"
        sentence += f"; ruled out: {_listed(self.exclusions(j))}." if self.exclusions(j) else "."
        if self.ties(j):
            why = self.why_tied(j)
            more = " and others" if len(why) > SHOWN else ""
            sentence += f" {', '.join(self.ties(j))} never followed it, but is tied by {'; '.join(why[:SHOWN])}{more}."
        return sentence

    @property
    def sentences(self) -> list[str]:
        """The limit of training in words: a summary, then a sentence for each context."""
        omitted = len(self._at) - MOST_SHOWN
        more = [f"… {omitted} more"] if omitted > 0 else []
        contexts = [self.context_sentence(j) for j in list(self._at)[:MOST_SHOWN]]
        return [self._summary(), " ".join(self._limits()), *contexts, *more]

    def _summary(self) -> str:
        if self.separable:
            summary = "Separable: tokens that never followed a context can all be ruled out after it, at once (Ŝ = S). "
        else:
            summary = "Not separable: some tokens that never followed a context are tied to tokens that did (Ŝ ≠ S). "
        attained = "one W has" if self.compatible else "no W has"
        summary += f"{'C' if self.compatible else 'Not c'}ompatible: {attained} the log-odds of the observed tokens."
        return summary

    def _limits(self) -> Iterator[str]:
        gap = self.infimum - self.entropy
        exact = self.separable and self.compatible
        where = "the entropy of the observed tokens" if exact else f"{gap:.4g} above the entropy of the observed tokens"
        margins = [margin for part in self.parts for margin in part.margins.values()]
        if margins:
            tight = sum(x == 1 for x in margins)
            yield f"The loss falls to {self.infimum:.6g}, {where}, and does not attain it."
            margin = f"1/‖W^mm‖ = {1 / self.norm:.6g}, tight for {tight} of {len(margins)} pairs"
            yield f"The direction of W converges to that of W^mm, of margin {margin}."
        else:
            yield f"Nothing can be ruled out: the loss has a minimiser, of value {self.infimum:.6g}, {where}."
        if r := sum(part.minimum.split.dimension for part in self.parts):
            norm = math.hypot(*(part.minimum.norm for part in self.parts))
            yield f"The part of W in F, of dimension {r}, converges to W⋆, ‖W⋆‖ = {norm:.6g}."


def _entropy(problem: MasterProblem) -> float:
    """Return the entropy of the observed next tokens, in nats."""
    p = problem.counts / problem.counts.sum(axis=1, keepdims=True)
    shares = problem.counts / problem.counts.sum()
    return float(-(shares * np.log(np.where(problem.supports, p, 1.0))).sum())


def _listed(names: Sequence[str]) -> str:
    """Join names by commas; for a long list only the first few, and the number of the rest."""
    omitted = len(names) - MOST_NAMED
    return ", ".join(names) if omitted <= 1 else f"{', '.join(names[:MOST_NAMED])} and {omitted} more"
