"""Statistics of the cases (data of single checks) that a strategy draws: sizes, losses, and shares with a property.

A property is a function that returns whether a case has the property, or None if the property does not apply to the
case; such a case is not counted. Equalities are decided exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np

from generators.assumptions import ASSUMPTIONS
from generators.case import Case
from generators.data_features import OF_CASES, OF_COPIES, OF_FEATURES, features_of
from generators.optimal_sets import head_of
from generators.score_assumptions import optimal_sets
from generators.subject import Subject
from reference_attention.directions import direction, neighbour_optimal
from reference_attention.losses import DRAWN_LOSSES
from reference_attention.paths.joint_risk import chosen_rows
from reference_attention.svm.label_svm import LabelSvm, label_svm, relaxed_max_margin
from reference_attention.svm.max_margin import MaxMargin, max_margin

LARGE = 7
"""The least number of tokens T or dimension d that counts as large; strategies for small cases draw at most 5."""
FAR = 2.0**30
"""Keys with max |key| above this number, or below its reciprocal, count as having extreme units."""
NEARLY = 1e-6
"""An ATT-SVM margin above 1 by less than this number counts as a near tie with the tokens of margin 1."""

Property = Callable[[Case], bool | None]


@dataclass(frozen=True)
class Share:
    """The number of cases that have a property, and the number of cases to which the property applies."""

    count: int
    of: int

    @property
    def value(self) -> float:
        """The share of cases with the property among the cases to which the property applies; 0 without such cases."""
        return self.count / self.of if self.of else 0.0

    def __str__(self) -> str:
        """Return "count/of", "0" if no case has the property, or an empty text if the property applies to no case."""
        return "" if not self.of else str(self.count) if not self.count else f"{self.count}/{self.of}"


@dataclass(frozen=True)
class Drawn:
    """Summary of the cases that a strategy drew.

    Attributes:
        id: the id of the statement whose strategy drew the cases.
        examples: number of cases.
        sizes: for each size by name (n, T, d, or others), the smallest, median and largest value.
        shares: for each property by name, the share of cases that have the property.
    """

    id: str
    examples: int
    sizes: Mapping[str, tuple[int, int, int]]
    shares: Mapping[str, Share]


def drawn_shares(id: str, cases: Sequence[Subject]) -> Drawn:
    """Summarise the cases of a statement; data that are not attention cases have sizes, but no shares."""
    names = dict.fromkeys(name for case in cases for name in case.sizes)
    lengths = {name: [case.sizes[name] for case in cases if name in case.sizes] for name in names}
    sizes = {
        name: (min(sizes_of_axis), sorted(sizes_of_axis)[len(sizes_of_axis) // 2], max(sizes_of_axis))
        for name, sizes_of_axis in lengths.items()
        if sizes_of_axis
    }
    # Evaluate all properties of one case before the next case, since they share the case's cached SVM solutions.
    rows = [[holds(case) for holds in PROPERTIES.values()] for case in cases if isinstance(case, Case)]
    properties = dict(zip(PROPERTIES, zip(*rows, strict=True), strict=True)) if rows else dict.fromkeys(PROPERTIES, ())
    shares = {
        name: Share(sum(x is True for x in answers), sum(x is not None for x in answers))
        for name, answers in properties.items()
    }
    return Drawn(id, len(cases), MappingProxyType(sizes), MappingProxyType(shares))


@lru_cache(maxsize=1)
def _svm(case: Case) -> MaxMargin | None:
    """Solve ATT-SVM of the chosen tokens.

    Return None if ATT-SVM is infeasible, or if α is not given and an input has several optimal tokens.
    """
    if case.alpha is None and (optimal_sets(case).sum(axis=1) > 1).any():
        return None
    solution = max_margin(case.problem.exact_keys, case.chosen_tokens)
    return solution if isinstance(solution, MaxMargin) else None


def _of_svm(property: Callable[[MaxMargin], bool]) -> Property:
    def holds(case: Case) -> bool | None:
        svm = _svm(case)
        return None if svm is None else bool(property(svm))

    return holds


def _of_features(property: Callable[[Any], bool | None]) -> Property:
    return lambda case: property(features_of(case))


def _of_copies(property: Callable[[Case, MaxMargin | None], bool | None]) -> Property:
    return lambda case: property(case, _svm(case))


def _near_tie(svm: MaxMargin) -> bool:
    close = np.isfinite(svm.margins) & ~svm.neighbours & (svm.margins - 1 < NEARLY)
    return bool(close.any())


def _of_direction(property: Callable[[Any, Case], bool]) -> Property:
    def holds(case: Case) -> bool | None:
        q = case.arrays.get("q", case.arrays.get("q1"))
        return None if q is None or not np.any(q) else bool(property(direction(case.problem.keys, q), case))

    return holds


def _has_loss(name: str) -> Property:
    return lambda case: case.problem.loss.name == name


def _optimal_features_agree(case: Case) -> bool | None:
    """Return whether all optimal tokens of each input have the same features under the nonlinear head.

    Only then can Assumption D be proven. Return None without such a head, or if each input has one optimal token.
    """
    best = optimal_sets(case)
    if "head_features" not in case.arrays or not (best.sum(axis=1) > 1).any():
        return None
    features = head_of(case).features
    return all(bool((row[mask] == row[mask][0]).all()) for row, mask in zip(features, best, strict=True))


@lru_cache(maxsize=1)
def _labels(case: Case) -> LabelSvm | None:
    """Solve the SVM for the head v_mm of the chosen tokens; return None if Assumption C (Theorem 6) is not proven."""
    if case.dataset is None or ASSUMPTIONS["optimal-support-tokens"].check(case).holds is not True:
        return None
    solution = label_svm(chosen_rows(case.dataset.signed_tokens, case.chosen_tokens))
    return solution if isinstance(solution, LabelSvm) else None


def _same_features(case: Case) -> bool | None:
    labels = _labels(case)
    if labels is None or case.dataset is None:
        return None
    chosen = chosen_rows(case.dataset.signed_tokens, case.chosen_tokens)[labels.support]
    return bool((chosen == chosen[0]).all())


def _full_rank(case: Case) -> bool | None:
    if _labels(case) is None or case.dataset is None:
        return None
    W = case.dataset.key_query
    return bool(np.linalg.matrix_rank(W) == W.shape[1])


def _parallel(case: Case) -> bool | None:
    """Return whether p_relax of Theorem 6 is parallel to p_mm, decided exactly; None if all inputs support v_mm."""
    labels, svm = _labels(case), _svm(case)
    if labels is None or svm is None or labels.support.all():
        return None
    relaxed = relaxed_max_margin(case.problem.keys, case.chosen_tokens, labels.support)
    if not isinstance(relaxed, MaxMargin):
        return None
    a, b = list(relaxed.exact.p), list(svm.exact.p)
    return all(a[i] * b[j] == a[j] * b[i] for i in range(len(a)) for j in range(i))


PROPERTIES: Mapping[str, Property] = MappingProxyType(
    {
        "n = 1": lambda case: case.problem.n == 1,
        "d = 1": lambda case: case.problem.d == 1,
        "one constraint only": lambda case: case.problem.n * (case.problem.T - 1) == 1,
        f"T or d ≥ {LARGE}": lambda case: max(case.problem.T, case.problem.d) >= LARGE,
        "keys beyond 2^±30": lambda case: not 1 / FAR < case.problem.key_scale < FAR,
        **{f"{name} loss": _has_loss(name) for name in DRAWN_LOSSES},
        "loss concave somewhere": lambda case: case.problem.loss.steepening(*case.problem.score_range) > 0,
        "Assumption B": lambda case: ASSUMPTIONS["equal-non-optimal-scores"].check(case).holds is True,
        "tied optimal scores": lambda case: bool((optimal_sets(case).sum(axis=1) > 1).any()),
        "α not optimal": lambda case: (
            None if case.alpha is None else bool((case.problem.gaps(case.chosen_tokens) < 0).any())
        ),
        "with tokens and labels": lambda case: case.dataset is not None,
        "with a start": lambda case: case.start is not None,
        "every token an SVM-neighbour": _of_svm(lambda svm: bool((svm.neighbours | ~np.isfinite(svm.margins)).all())),
        "dependent neighbours": _of_svm(lambda svm: not svm.independent),
        "degenerate duals": _of_svm(lambda svm: not svm.strictly_complementary),
        "near tie of margins": _of_svm(_near_tie),
        **{name: _of_features(holds) for name, holds in OF_FEATURES.items()},
        **OF_CASES,
        **{name: _of_copies(holds) for name, holds in OF_COPIES.items()},
        "q neighbour-optimal": _of_direction(lambda q, case: q.unique and neighbour_optimal(q, case.problem.scores)),
        "ties in selection": _of_direction(lambda q, case: not q.unique),
        "q beyond 2^±40": _of_direction(lambda q, case: not 2.0**-40 < q.norm < 2.0**40),
        "nonlinear head": lambda case: None if case.dataset is not None else "head_features" in case.arrays,
        "one feature per optimal set": _optimal_features_agree,
        "identical support features": _same_features,
        "W of full column rank": _full_rank,
        "p_relax parallel to p_mm": _parallel,
    }
)
"""The properties of cases, by their names in tables."""
