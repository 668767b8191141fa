"""Max-margin solutions where W is trained, of least Frobenius and of least nuclear norm, and their ranks.

Regularization paths of W converge in direction to the solution of least Frobenius norm, regularization paths of K and
Q, W = KQᵀ, to the solution of least nuclear norm.

References: *Transformers as Support Vector Machines*, Lemma 2, Theorem 2.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from flint import fmpq_mat

from generators.case import Case
from reference_attention.svm.max_margin import Infeasible, MaxMargin
from reference_attention.svm.nuclear_max_margin import NuclearMaxMargin, nuclear_max_margin
from theorems.explanations.ragged_problem import RaggedProblem, beside
from theorems.explanations.selection import Chosen


@dataclass(frozen=True, eq=False)
class MatrixSolutions:
    """The solutions of least Frobenius and of least nuclear norm for one choice of tokens.

    Attributes:
        of: the name of the choice: "optimal", "selected", "trained" or "given".
        frobenius: the solution W of least Frobenius norm; its prompt ``p`` is vec(W).
        rank: the rank of that solution, exact.
        nuclear: the solution of least nuclear norm.
    """

    of: str
    frobenius: MaxMargin
    rank: int
    nuclear: NuclearMaxMargin

    @property
    def one_minus_cosine(self) -> float:
        """Return 1 − cos of the angle between the two solutions."""
        other = self.nuclear.W.ravel()
        return float(np.square(self.frobenius.direction - other / np.linalg.norm(other)).sum() / 2)

    @property
    def rows(self) -> tuple[tuple[str, ...], ...]:
        """Return a row per solution: tokens, norm and its value, rank, number of tight constraints, uniqueness."""
        svm, least = self.frobenius, self.nuclear
        constraints = svm.neighbours.size - len(svm.alpha)
        first = (
            self.of,
            "‖W‖_F",
            f"{svm.norm:.6g}",
            str(self.rank),
            f"{int(svm.neighbours.sum())} of {constraints}",
            "exact",
        )
        rank, tight = (
            ("", "") if least.exact is None else (str(least.rank), f"{len(least.exact.support)} of {constraints}")
        )
        uniqueness = f"not decided: {least.undecided}" if least.exact is None else "the only one"
        return first, (self.of, "‖W‖_⋆", f"{least.norm:.6g}", rank, tight, uniqueness)

    def as_json(self) -> dict[str, Any]:
        """Return the numbers in full for JSON; an undecided number is null, with the reason."""
        least = self.nuclear
        return {
            "of": self.of,
            "frobenius": {"norm": self.frobenius.norm, "rank": self.rank},
            "nuclear": {
                "bounds": least.bounds,
                "rank": least.rank,
                "gap": least.gap,
                "W": least.W,
                "unique": least.unique,
                "undecided": least.undecided or None,
            },
            "one_minus_cosine": self.one_minus_cosine,
        }


def matrix_solutions(case: Case, choices: Iterable[Chosen]) -> tuple[MatrixSolutions, ...]:
    """Find the solutions for each choice of tokens that some W separates; return () if the data have no queries."""
    if case.queried is None:
        return ()
    solutions = []
    for choice in choices:
        problem = beside(case.problem, choice.alpha)
        data = problem.queried if isinstance(problem, RaggedProblem) else case.queried
        least = None if choice.solution is None or data is None else nuclear_max_margin(data.keys, choice.alpha)
        if choice.solution is None or least is None or isinstance(least, Infeasible):
            continue
        rank = int(fmpq_mat(*case.queried.shape, list(choice.solution.exact.p)).rank())
        solutions.append(MatrixSolutions(choice.name, choice.solution, rank, least))
    return tuple(solutions)
