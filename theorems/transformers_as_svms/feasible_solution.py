"""Exact comparison of the solution of ATT-SVM(α) under test with feasible weights W in closed form.

References: *Transformers as Support Vector Machines*, Theorem 1; derivations and symbols in :mod:`.feasibility`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from flint import fmpq, fmpq_mat
from jaxtyping import Int64

from generators.case import Case
from generators.margin_assumptions import difference_rows
from generators.query_assumptions import independent_tokens_and_queries
from reference_attention.exact import rational_matrix
from reference_attention.query_dataset import QueryDataset
from reference_attention.svm.max_margin import Infeasible, max_margin
from theorems.core.claim import Claim, Ended, Form
from theorems.core.claim_name import premise, sharper, stated_claim
from theorems.core.implementation import Implementation
from theorems.core.parts import Condition
from theorems.core.tolerances import EXACT
from theorems.transformers_as_svms import feasible_weights as closed
from theorems.transformers_as_svms.feasible_weights import squared_norm

BOTH = Condition(
    "where tokens within each input are affinely independent, and queries independent",
    lambda case: independent_tokens_and_queries(case).holds is not False,
)
ROWS = "where the rows (x_iα − x_it) z_iᵀ are independent"
LABELS = "where queries separate the labels and one token of each input is best"
ANY = "where tokens and queries, or rows, are independent, or queries separate the labels"
EXISTS = premise("solution-exists", when=ANY)
IS_FEASIBLE = premise("solution-is-feasible", when=ANY)
IS_THE_PROJECTION = premise("solution-is-the-projection", when=ANY)
PSEUDOINVERSES = stated_claim("pseudoinverses-give-margin-one", when=BOTH)
BY_QUERIES = sharper("norm-at-most-by-queries", when=BOTH)
BY_SINGULAR_VALUES = sharper("norm-at-most-by-singular-values", when=BOTH)
NO_LONGER = sharper("rows-give-no-longer-one", when=BOTH)
ROWS_GIVE_ONE = sharper("rows-give-margin-one", when=ROWS)
IS_THAT_OF_ROWS = sharper("solution-is-that-of-the-rows", when=ROWS)
LABELS_GIVE_ONE = sharper("labels-give-margin-one", when=LABELS)
BY_LABELS = sharper("norm-at-most-by-labels", when=LABELS)


@dataclass
class ClaimChecks:
    """Results of exact checks, by claim; each claim is checked for several choices of tokens.

    Attributes:
        wrong: for each claim's name the detail of its first failed check, or an empty text if all its checks hold.
    """

    wrong: dict[str, str] = field(default_factory=dict)

    def check(self, name: str, holds: bool, detail: str) -> None:
        """Record one check of the claim ``name``; ``detail`` is reported if the check fails."""
        if not self.wrong.get(name):
            self.wrong[name] = "" if holds else detail

    def claims(self) -> Iterator[Claim]:
        """Yield one claim for each name that was checked."""
        for name, wrong in self.wrong.items():
            yield Claim(name, Form.EXACT, -1.0 if wrong else 0.0, 0.0, EXACT, wrong)


class SolutionChecks:
    """Checks of the solution of ATT-SVM(α) that the implementation under test returns.

    Raises:
        Ended: the implementation reports that ATT-SVM(α) is infeasible although a feasible W is known.
    """

    def __init__(
        self,
        case: Case,
        data: QueryDataset,
        alpha: Int64[np.ndarray, "n"],
        under_test: Implementation,
        checked: ClaimChecks,
    ) -> None:
        """Solve ATT-SVM(α) with the implementation under test, and check that the solution exists and is feasible."""
        self.data, self.alpha, self.under_test, self.checked = data, alpha, under_test, checked
        self.named = f"α = {alpha.tolist()}"
        self.G = fmpq_mat(list(difference_rows(case.problem.exact_keys, alpha).values()))
        solution = under_test[max_margin](case.problem.exact_keys, alpha)
        checked.check(EXISTS, not isinstance(solution, Infeasible), f"{self.named} is reported as infeasible")
        if isinstance(solution, Infeasible):
            stop = Ended(self.named)
            stop.claims = tuple(checked.claims())
            raise stop
        self.p = fmpq_mat(self.G.ncols(), 1, list(solution.exact.p))
        self.size = squared_norm(self.p)
        least = min((self.G * self.p).entries())
        checked.check(IS_FEASIBLE, least >= 1, f"{self.named}: a margin is {float(least):.17g}")

    def by_pseudoinverses(self) -> None:
        """Check the margins of W = [w_1 … w_n] Z⁺, and that ‖W^mm‖ is at most its bounds from queries and tokens."""
        W, sizes = closed.by_pseudoinverses(self.data, self.alpha)
        self._all_ones(PSEUDOINVERSES, W)
        queries = closed.eigenvalue_bound(rational_matrix(self.data.queries))
        tokens = min(
            closed.eigenvalue_bound(closed.token_rows(self.data, self.alpha, i)) for i in range(len(self.data.Y))
        )
        self._no_longer(BY_QUERIES, sum(sizes, fmpq(0)) / queries)
        self._no_longer(BY_SINGULAR_VALUES, fmpq(self.G.nrows()) / (queries * tokens))
        shortest = squared_norm(closed.all_ones(self.G)) if self.G.rank() == self.G.nrows() else squared_norm(W)
        self.checked.check(NO_LONGER, shortest <= squared_norm(W), f"{self.named}: ‖G⁺1‖² > ‖W‖²")

    def by_rows(self) -> None:
        """Check the margins of W = G⁺1, and that W^mm = G⁺1 if and only if the multipliers (GGᵀ)⁻¹1 are ≥ 0."""
        W = closed.all_ones(self.G)
        self._all_ones(ROWS_GIVE_ONE, W)
        ones = fmpq_mat(self.G.nrows(), 1, [1] * self.G.nrows())
        multipliers = (self.G * self.G.transpose()).solve(ones).entries()
        same, allowed = self.p == W, all(x >= 0 for x in multipliers)
        verb = "is" if same else "is not"
        detail = f"{self.named}: the least multiplier is {float(min(multipliers)):.6g}, and W^mm {verb} G⁺1"
        self.checked.check(IS_THAT_OF_ROWS, same == allowed, detail)

    def by_labels(self) -> None:
        """Check the margins and norm of W = v qᵀ/min gap, where q is the shortest vector that separates the labels."""
        signed = self.data.Y[:, None] * self.data.queries
        keys = np.stack([signed, np.zeros_like(signed)], axis=1)
        solution = self.under_test[max_margin](keys, np.zeros(len(keys), dtype=np.int64))
        self.checked.check(EXISTS, not isinstance(solution, Infeasible), "the labels are reported as inseparable")
        if isinstance(solution, Infeasible):
            return
        gap, q = closed.smallest_gap(self.data), list(solution.exact.p)
        W = closed.by_labels(self.data, q, gap)
        least = min(self._margins(W))
        self.checked.check(LABELS_GIVE_ONE, least >= 1, f"the least margin is {float(least):.17g}")
        head = squared_norm(rational_matrix(self.data.v[:, None]))
        self._no_longer(BY_LABELS, head * squared_norm(fmpq_mat([q])) / gap**2)
        self._projection(W, least)

    def _margins(self, W: fmpq_mat) -> list[fmpq]:
        return list((self.G * fmpq_mat(self.G.ncols(), 1, W.entries())).entries())

    def _all_ones(self, name: str, W: fmpq_mat) -> None:
        margins = self._margins(W)
        other = [x for x in margins if x != 1]
        self.checked.check(name, not other, f"{self.named}: {len(other)} of {len(margins)} margins are not 1")
        self._projection(W, fmpq(1))

    def _projection(self, W: fmpq_mat, margin: fmpq) -> None:
        """Check ⟨W^mm, W⟩ ≥ m ‖W^mm‖² for a W with all margins ≥ m = ``margin``."""
        along = sum((a * b for a, b in zip(self.p.entries(), W.entries(), strict=True)), fmpq(0))
        short = f"{self.named}: ⟨W^mm, W⟩/‖W^mm‖² = {float(along / self.size):.17g} < {float(margin):.6g}"
        self.checked.check(IS_THE_PROJECTION, along >= margin * self.size, short)

    def _no_longer(self, name: str, most: fmpq) -> None:
        detail = f"{self.named}: ‖W^mm‖² = {float(self.size):.17g} > {float(most):.17g}"
        self.checked.check(name, self.size <= most, detail)
