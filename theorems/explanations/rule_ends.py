"""Runs of rules of ``theorems bench``, such as Adam, from the start of an explanation, compared with theory.

A run of a rule ends after a number of steps, so nothing is concluded about its limit: the report says which
tokens have the largest weight, since which step, and how near the run is to their max-margin direction.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64

from generators.case import Case
from generators.finding import format_tokens
from generators.user_data import Given
from reference_attention.angles import one_minus_cosine
from reference_attention.errors import InvalidInput
from reference_attention.norms import name_of
from reference_attention.risk import softmax_weights
from reference_attention.svm.max_margin import MaxMargin, max_margin
from theorems.benchmark.bench_units import shape_of
from theorems.benchmark.measurements import EUCLIDEAN, Kind, Limit, Limits, NoLimit
from theorems.benchmark.rules import rule_named
from theorems.explanations.applicability import Applicability, applicability
from theorems.explanations.selection import FollowedFlow, chosen_tokens
from theorems.run.findings import findings
from theorems.run.registry.suite import statements
from theorems.run.registry.user_file import is_in_a_file

STEPS = 20_000
"""Steps of a run, as in ``theorems bench``."""
EVERY = 100
"""Steps between two records of a run."""
CHOSEN = 0.5
"""Largest 1 − s, with s the largest weight of an input, at which a run still counts as settled."""


@dataclass(frozen=True)
class RuleEnd:
    """The state of a run at its end.

    Attributes:
        rule: the name of the rule.
        steps: the number of its steps.
        norm: ‖p‖.
        tokens: the token of largest weight of each input.
        since: the first recorded step from which on these tokens have the largest weight at all records.
        off: the largest 1 − s over the inputs, with s the softmax weight of the token in ``tokens``.
        like_flow: whether the flow from the same start selects these tokens; None where the flow selects none.
        of: the name of the norm whose max-margin direction for these tokens the run is compared with.
        locally_optimal: whether these tokens are locally optimal (Definition 2, exact).
        one_minus_cosine: 1 − cos between p and that max-margin direction; None where no direction exists, or if p = 0.
        named: whether a theorem about attention proves that the rule converges to that max-margin direction.
        source: the reference for the theorem, or what is known about the rule on other models.
        representable: whether every step led to a point within the range of float64.
        speaks: id and title of each theorem on the rule whose assumptions all hold on the data.
        silent: id of each other theorem on the rule, and its assumptions that fail or are not established, with why.
    """

    rule: str
    steps: int
    norm: float
    tokens: tuple[int, ...]
    since: int
    off: float
    like_flow: bool | None
    of: str
    locally_optimal: bool
    one_minus_cosine: float | None
    named: bool
    source: str
    representable: bool
    speaks: tuple[tuple[str, str], ...] = ()
    silent: tuple[tuple[str, str], ...] = ()

    @property
    def settled(self) -> bool:
        """Return whether the last tokens have had most of the weight for half of the steps, and may keep it.

        A run near the Euclidean max-margin direction of tokens that are not locally optimal is not settled: however
        little weight a neighbour of higher score has, the gradient moves more weight to it.
        """
        leaves = self.of == name_of(EUCLIDEAN) and not self.locally_optimal
        return self.representable and self.off <= CHOSEN and self.since <= self.steps // 2 and not leaves

    @property
    def row(self) -> tuple[str, ...]:
        """Return the cells of the run in the table of rules."""
        flow = {True: "the same", False: "others", None: "none"}[self.like_flow]
        apart = "" if self.one_minus_cosine is None else f"{self.one_minus_cosine:.2g}"
        since = str(self.since) if self.settled else f"{self.since}, not settled"
        return (
            self.rule,
            f"{self.norm:.3g}",
            format_tokens(self.tokens),
            since,
            f"{self.off:.2g}",
            flow,
            apart,
            self.of,
        )

    @property
    def words(self) -> str:
        """Return sentences on the run, and on the theorems about its limit."""
        tokens = format_tokens(self.tokens)
        if not self.representable:
            return f"{self.rule} left the range of float64 within {self.steps} steps."
        flow = {True: "the same as the flow", False: "other tokens than the flow", None: "while the flow selects none"}
        outcome = (
            f"After {self.steps} steps {self.rule} gives the largest weight to {tokens}, {flow[self.like_flow]}"
            if self.settled
            else f"After {self.steps} steps {self.rule} has not settled yet (largest weights at {tokens} since step"
            f" {self.since}, 1 − s up to {self.off:.2g}{'' if self.locally_optimal else ', not locally optimal'})"
        )
        apart = "" if self.one_minus_cosine is None else f"; 1 − cos to their max-margin direction in {self.of} is"
        apart += "" if self.one_minus_cosine is None else f" {self.one_minus_cosine:.2g}"
        theory = (
            f"Theory, under its assumptions, gives the max-margin direction in {self.of} as the limit ({self.source})"
            if self.named
            else f"No theorem about attention gives its limit ({self.source})"
        )
        return " ".join([f"{outcome}{apart}. {theory}.", *self._applicable])

    @property
    def _applicable(self) -> list[str]:
        """Return a sentence for each theorem about the rule: it applies, or it lacks certain assumptions."""
        sentences = [f"{id} applies to these data ({title})." for id, title in self.speaks]
        return sentences + [f"{id} does not apply: {lacks}." for id, lacks in self.silent]


def check_rules(rules: Sequence[str]) -> None:
    """Check that the rules are known.

    Raises:
        InvalidInput: an unknown rule, or one in a file of the user's, which only ``theorems bench`` runs.
    """
    for rule in rules:
        if is_in_a_file(rule):
            raise InvalidInput(
                f"--rule: {rule} is a file; explain runs only named rules; run the file with theorems bench."
            )
        rule_named(rule)


def rule_ends(case: Case, path: FollowedFlow, rules: Iterable[str]) -> tuple[RuleEnd, ...]:
    """Run each rule from the start of the flow for :data:`STEPS` steps, and return its end."""
    return tuple(_rule_end(case, path, rule) for rule in rules)


def _rule_end(case: Case, path: FollowedFlow, name: str) -> RuleEnd:
    problem, rule = case.problem, rule_named(name)
    run = rule.run([problem], path.start[None], STEPS, shape=shape_of(case), record_every=EVERY)
    points = run.points[:, 0]
    chosen = np.argmax(np.einsum("ntd,rd->rnt", problem.keys, points), axis=-1)
    other = np.flatnonzero((chosen != chosen[-1]).any(axis=1))
    alpha, p = chosen[-1].astype(np.int64), points[-1]
    weights = softmax_weights(problem.keys, p)
    off = np.where(np.arange(problem.T) != alpha[:, None], weights, 0.0).sum(axis=1)
    norm = EUCLIDEAN if rule.theory.norm is None else float(rule.theory.norm)
    known = statements()  # statements in a user's file are not among them
    named = [known[id] for id in rule.theory.statements if id in known]
    decided = findings(Given(case), named)
    applicabilities = [applicability(statement, "optimal", decided) for statement in named]
    return RuleEnd(
        name,
        STEPS,
        float(np.linalg.norm(p)),
        tuple(alpha.tolist()),
        0 if not other.size else int(run.iterations[other[-1] + 1]),
        float(off.max()),
        None if path.selects is None else bool(np.array_equal(path.selects, alpha)),
        name_of(norm),
        chosen_tokens(problem, "selected", alpha).locally_optimal,
        _distance_from_direction(case, alpha, p, norm),
        rule.theory.norm is not None,
        rule.theory.source,
        bool(run.representable[0]),
        tuple((theorem.id, theorem.title) for theorem in applicabilities if theorem.applies),
        tuple((theorem.id, lacking(theorem)) for theorem in applicabilities if not theorem.applies),
    )


def lacking(statement: Applicability) -> str:
    """Return the assumptions of a statement that fail or are not established, each with the number that decides it."""
    return "; ".join(
        f"{finding.id} {'fails' if finding.holds is False else 'is not established'} ({finding.evidence})"
        for finding in statement.missing
    )


def _distance_from_direction(case: Case, alpha: Any, p: Float64[np.ndarray, "d"], norm: float) -> float | None:
    svm = max_margin(case.problem.exact_keys, alpha)
    if not isinstance(svm, MaxMargin) or not p.any():
        return None
    try:
        return float(one_minus_cosine(p, Limits(case.problem, Limit(svm, Kind.LOCAL)).direction(norm)))
    except NoLimit:
        return None
