"""Metamorphic check: a statement must have the same verdict on a case and on the case changed by a relation.

A relation is a change of data (such as scaling or reordering) that must not change the verdict. A difference is an
error of a statement, a predicate, a solver or the implementation under test, never of a theorem. It is reported as the
falsified claim :data:`SAME_VERDICT`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from generators.metamorphic_relations import RUNS, Relation, relation_of
from generators.subject import Subject
from theorems.core.check import Outcome, check
from theorems.core.claim import WORST_FIRST, Claim, Form, Verdict, undecided_claim
from theorems.core.claim_name import ALWAYS
from theorems.core.implementation import Implementation
from theorems.core.parts import Condition
from theorems.core.statement import Statement
from theorems.core.tolerances import EXACT

SAME_VERDICT = "same-verdict-on-changed-data"
"""Name of the claim that the statement has the same verdict on the changed case."""
DIFFERS, NOT_FOUND = "differs", "not-found"
"""Words that follow the relation's name in ``branch`` of the claim :data:`SAME_VERDICT`: DIFFERS if verdicts differ,
NOT_FOUND if a search found nothing on one of the two cases."""


def check_with_relation(statement: Statement, case: Subject, under_test: Implementation) -> Outcome:
    """Check the statement on the case, and on the case changed by one relation, chosen by the seed of the case.

    If the two cases differ in the verdict, in the verdict on a claim or in the assumption that fails, the outcome is
    falsified by the claim :data:`SAME_VERDICT`, which names the relation; otherwise this claim is upheld. The claim is
    undecided if a search or run of the suite succeeded on only one of the two cases. If the statement is falsified on
    the case itself, the changed case is not checked.
    """
    outcome = check(statement, case, under_test)
    if outcome.verdict is Verdict.FALSIFIED:
        return outcome
    varied = relation_of(case, statement.varies)
    if varied is None:
        return outcome
    relation, changed = varied
    again = check(statement, changed, under_test)
    if statement.search and outcome.not_found is not again.not_found and _undecided_or_upheld(again):
        reason = again.reason if again.not_found else outcome.reason
        return _not_compared(relation, outcome, statement.search, reason)
    not_applicable = [each for each in (outcome, again) if each.verdict is Verdict.NOT_APPLICABLE]
    if len(not_applicable) == 1 and (why := RUNS.get(missing_assumption(not_applicable[0]))):
        return _not_compared(relation, outcome, why, not_applicable[0].reason)
    expected = _decided_by_sizes(statement) if case.sizes == changed.sizes else ()
    skipped = _names_not_found(outcome, again) if statement.search else set()
    return compare(relation, outcome, difference_of(outcome, again, expected, skipped))


def _not_compared(relation: Relation, outcome: Outcome, why: str, reason: str) -> Outcome:
    """Return the outcome made inconclusive, as a run or search of the suite succeeded on only one of the two cases."""
    claim = replace(undecided_claim(SAME_VERDICT, why, not_found=True), branch=f"{relation.name} {NOT_FOUND}")
    claims = (*outcome.claims, claim)
    return replace(outcome, verdict=Verdict.INCONCLUSIVE, claims=claims, reason=reason, not_found=True)


def missing_assumption(outcome: Outcome) -> str:
    """Return the id of the assumption that fails, from the reason of a not-applicable outcome."""
    return outcome.reason.partition(": ")[0]


def _decided_by_sizes(statement: Statement) -> list[str]:
    """Return the claims whose condition the case alone decides; both cases must make them, or neither."""
    return [name for name, when in statement.claims.items() if when == ALWAYS or isinstance(when, Condition)]


def _undecided_or_upheld(outcome: Outcome) -> bool:
    return outcome.not_found or outcome.verdict is Verdict.UPHELD


def compare(relation: Relation, outcome: Outcome, difference: str) -> Outcome:
    """Return the outcome on a case with one more claim: that the relation changes nothing.

    Args:
        relation: the relation by which the case was changed.
        outcome: the outcome on the unchanged case.
        difference: the difference that :func:`difference_of` returned; empty if there is none.
    """
    if not difference and outcome.verdict is Verdict.NOT_APPLICABLE:
        return outcome
    detail = f"{relation.name}: where {relation.says}, {difference}" if difference else ""
    slack = -float("inf") if difference else 0.0
    branch = f"{relation.name} {DIFFERS}" if difference else relation.name
    claim = Claim(SAME_VERDICT, Form.EXACT, slack, 0.0, EXACT, detail=detail, branch=branch)
    claims = (*outcome.claims, claim)
    if not difference:
        return replace(outcome, claims=claims)
    reason = f"{SAME_VERDICT} (no claim of the statement: the suite contradicts itself): {detail}"
    return Outcome(Verdict.FALSIFIED, claims, reason)


def _names_not_found(*outcomes: Outcome) -> set[str]:
    """Return the names of claims that are undecided in an outcome, as a search found nothing, and falsified in none."""
    claims = [claim for outcome in outcomes for claim in outcome.claims]
    wrong = {claim.name for claim in claims if claim.verdict is Verdict.FALSIFIED}
    return {claim.name for claim in claims if claim.not_found} - wrong


def difference_of(
    outcome: Outcome, changed: Outcome, expected: Collection[str] = (), skipped: Collection[str] = ()
) -> str:
    """Return a phrase for the first difference between the outcomes on a case and on the changed case; empty if none.

    Args:
        outcome: the outcome on the case.
        changed: the outcome on the changed case.
        expected: the names of claims that must be made on both cases or on neither.
        skipped: the names of claims that are not compared.
    """
    if outcome.verdict is not changed.verdict:
        return f"the verdict is {_in_words(changed)} in place of {_in_words(outcome)}"
    if outcome.verdict is Verdict.NOT_APPLICABLE:
        missing, now = (missing_assumption(each) for each in (outcome, changed))
        return "" if missing == now else f"the assumption that fails is {now} in place of {missing}"
    before, after = _by_name(outcome.claims), _by_name(changed.claims)
    other = [n for n in before if n in after and before[n] is not after[n] and n not in skipped]
    if other:
        return f"{other[0]} is {after[other[0]]} in place of {before[other[0]]}"
    lost = sorted(({*before} ^ {*after}) & {*expected} - {*skipped})
    return f"{lost[0]} is claimed only on the {'unchanged' if lost[0] in before else 'changed'} case" if lost else ""


def _in_words(outcome: Outcome) -> str:
    return f"{outcome.verdict} ({outcome.reason})" if outcome.reason else str(outcome.verdict)


def _by_name(claims: Iterable[Claim]) -> dict[str, Verdict]:
    """Return the worst verdict on each claim, by the claim's name."""
    worst: dict[str, Verdict] = {}
    for claim in claims:
        worst[claim.name] = min(claim.verdict, worst.get(claim.name, claim.verdict), key=WORST_FIRST.index)
    return worst
