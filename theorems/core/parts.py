"""The parts of a statement: premises, the conclusion as its source states it, and sharper claims of the suite's own.

A statement is falsified if any of its claims is falsified. What this means depends on the part to which the claim
belongs. A falsified premise means that the computed objects are not those that the statement is about; a falsified
conclusion, that the statement is wrong; a falsified sharper claim, that only the suite's addition is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from theorems.core.claim import WORST_FIRST, Claim, Form, Verdict


class Part(StrEnum):
    """The part of a statement to which a claim belongs."""

    STATED = "stated"
    """The conclusion as the source states it, at finite points or in the limit."""
    PREMISE = "premise"
    """A claim that data, solutions and runs are what the conclusion assumes."""
    SHARPER = "sharper"
    """A claim beyond what the source states: an explicit constant, a rate, or the next-order term of a limit."""

    @property
    def words(self) -> str:
        """The part as a phrase."""
        names = {Part.STATED: "the conclusion", Part.PREMISE: "a premise", Part.SHARPER: "a sharper form of ours"}
        return names[self]


class Condition(str):
    """A description of the cases on which a claim is made, with a predicate that decides whether a case is among them.

    For example ``Condition("n = 1", lambda case: case.problem.n == 1)``.

    Attributes:
        holds: a function of a case that returns whether the condition holds.
    """

    holds: Callable[[Any], bool]

    def __new__(cls, words: str, holds: Callable[[Any], bool]) -> Condition:
        """Create the string with the predicate ``holds`` as its attribute."""
        condition = super().__new__(cls, words)
        condition.holds = holds
        return condition


@dataclass(frozen=True)
class Parts:
    """The verdicts on the parts of a statement on a falsified case; None for a part without claims.

    Attributes:
        stated: the verdict on the conclusion as the source states it. It is inconclusive if a claim that must be made
            on the case was not made or not decided, or if a premise was falsified, because the computed objects are
            then not those that the statement is about.
        premises: the verdict on the premises.
        sharper: the verdict on the claims that are sharper than the source.
        forms: the verdict on all claims of each form (exact, effective, limit, sharp).
    """

    stated: Verdict | None = None
    premises: Verdict | None = None
    sharper: Verdict | None = None
    forms: dict[Form, Verdict] = field(default_factory=dict)

    @property
    def note(self) -> str:
        """Return the falsified part in words, for a table; empty if it is the conclusion as its source states it."""
        if self.stated is Verdict.UPHELD:
            return "a sharper form only"
        if self.stated is Verdict.INCONCLUSIVE:
            return "its conclusion is not decided"
        return "no source states it" if self.stated is None else ""

    def as_json(self) -> dict[str, Any]:
        """Return the verdicts by part and by form, as strings; parts and forms without claims are left out."""
        parts = {name: getattr(self, name) for name in ("stated", "premises", "sharper")}
        forms = {str(form): str(self.forms[form]) for form in Form if form in self.forms}
        return {**{name: str(verdict) for name, verdict in parts.items() if verdict is not None}, "forms": forms}


def worst(verdicts: Iterable[Verdict | None]) -> Verdict | None:
    """Return the worst of several verdicts, falsified first; None if there are none."""
    distinct = set(verdicts)
    return next((verdict for verdict in WORST_FIRST if verdict in distinct), None)


def merge_parts(several: Iterable[Parts | None]) -> Parts | None:
    """Return the worst verdict on each part over several cases; None if no case was falsified."""
    parts = [part for part in several if part is not None]
    if not parts:
        return None
    forms = {form: worst(part.forms.get(form) for part in parts) for form in Form}
    return Parts(
        worst(part.stated for part in parts),
        worst(part.premises for part in parts),
        worst(part.sharper for part in parts),
        {form: verdict for form, verdict in forms.items() if verdict is not None},
    )


def parts_on(
    case: Any, claims: Iterable[Claim], part_of: Callable[[str], Part], states: Mapping[str, str] | None
) -> Parts:
    """Return the verdicts on the parts of a statement on one case.

    Args:
        case: the case, for which the conditions in ``states`` are decided.
        claims: all claims that were made on the case.
        part_of: a function from the name of a claim to the part to which the claim belongs.
        states: the claims of the conclusion as its source states it, each with the cases on which the claim is made;
            empty if no source states a conclusion, None if the statement does not declare it.
    """
    all_claims = list(claims)
    by_part = {part: worst(claim.verdict for claim in all_claims if part_of(claim.name) is part) for part in Part}
    conclusion, premises = by_part[Part.STATED], by_part[Part.PREMISE]
    names = {claim.name for claim in all_claims}
    missing = any(name not in names and _is_due(when, case) for name, when in (states or {}).items())
    if states is not None and not states:
        conclusion = None
    elif premises is Verdict.FALSIFIED or conclusion is None or (missing and conclusion is not Verdict.FALSIFIED):
        conclusion = Verdict.INCONCLUSIVE
    forms = {form: worst(claim.verdict for claim in all_claims if claim.form is form) for form in Form}
    return Parts(
        conclusion,
        premises,
        by_part[Part.SHARPER],
        {form: verdict for form, verdict in forms.items() if verdict is not None},
    )


def _is_due(when: str, case: Any) -> bool:
    """Return whether a claim must be made on a case; True if the claim's condition cannot be decided."""
    if not isinstance(when, Condition):
        return True
    try:
        return when.holds(case)
    except Exception:
        return True


def explain_part(part: Part, form: Form, parts: Parts, source: str) -> str:
    """Describe what a falsified claim means for its statement.

    Args:
        part: the part of the statement to which the claim belongs.
        form: the form (exact, effective, limit or sharp) of the claim.
        parts: the verdicts on all parts on the case.
        source: who states the conclusion, such as ``the paper``.
    """
    if parts.stated is None:
        return f"a claim of ours, which {source} does not state"
    if part is Part.STATED:
        own_conclusion = f"{source}'s own conclusion"
        if parts.stated is not Verdict.FALSIFIED:
            return f"{own_conclusion}, not decided on this case, as a premise fails"
        return own_conclusion if form in (Form.EXACT, Form.LIMIT) else f"{own_conclusion}, in its {form} form"
    state = {
        Verdict.UPHELD: "is upheld on this case",
        Verdict.FALSIFIED: "is falsified on this case, too",
    }.get(parts.stated, "is not decided on this case")
    role = "a premise, not what is concluded" if part is Part.PREMISE else "a sharper form of ours"
    return f"{role}; {source}'s conclusion {state}"
