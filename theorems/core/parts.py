"""Whose claim it is: a statement has premises, its conclusion as its source states it, and sharper forms of ours.

A statement is falsified when any claim of it is. Which part the claim belongs to decides what that says: of a premise,
that the objects computed are not those that the statement speaks of; of the stated conclusion, that the statement is
wrong; of a sharper form, that the suite's own addition to it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from theorems.core.claim import WORST_FIRST, Claim, Form, Verdict


class Part(StrEnum):
    """What a claim is to its statement."""

    STATED = "stated"
    """The conclusion as the source states it, at finite points or in the limit."""
    PREMISE = "premise"
    """That data, solutions and runs are those that the conclusion speaks of."""
    SHARPER = "sharper"
    """More than the source states: an explicit constant, a rate, the next-order term."""

    @property
    def words(self) -> str:
        """For a reader."""
        names = {Part.STATED: "the conclusion", Part.PREMISE: "a premise", Part.SHARPER: "a sharper form of ours"}
        return names[self]


class Condition(str):
    """When a claim is made, in words that can be decided: ``Condition("n = 1", lambda case: case.problem.n == 1)``.

    Attributes:
        holds: whether it does on a case.
    """

    holds: Callable[[Any], bool]

    def __new__(cls, words: str, holds: Callable[[Any], bool]) -> Condition:
        made = super().__new__(cls, words)
        made.holds = holds
        return made


@dataclass(frozen=True)
class Parts:
    """The verdicts on the parts of a statement, on cases on which it was falsified; None of a part without claims.

    Attributes:
        stated: inconclusive if a claim of the conclusion that is due was not made or not decided, or if a premise was
            falsified: what was computed is then not what the conclusion speaks of.
        forms: the verdict on the claims of each form, premises included.
    """

    stated: Verdict | None = None
    premises: Verdict | None = None
    sharper: Verdict | None = None
    forms: dict[Form, Verdict] = field(default_factory=dict)

    @property
    def note(self) -> str:
        """In a few words for a table; empty where the stated conclusion is what was falsified."""
        if self.stated is Verdict.UPHELD:
            return "a sharper form only"
        if self.stated is Verdict.INCONCLUSIVE:
            return "its conclusion is not decided"
        return "no source states it" if self.stated is None else ""

    @classmethod
    def of_json(cls, held: Mapping[str, Any]) -> Parts:
        """What :meth:`as_json` wrote.

        Raises:
            ValueError: it did not.
        """
        forms = held.get("forms")
        if not isinstance(forms, dict) or not {*held} <= {"stated", "premises", "sharper", "forms"}:
            raise ValueError("neither parts nor forms")
        parts = {name: Verdict(verdict) for name, verdict in held.items() if name != "forms"}
        return cls(**parts, forms={Form(form): Verdict(verdict) for form, verdict in forms.items()})

    def as_json(self) -> dict[str, Any]:
        """By part and by form; those without claims are left out."""
        parts = {name: getattr(self, name) for name in ("stated", "premises", "sharper")}
        forms = {str(form): str(self.forms[form]) for form in Form if form in self.forms}
        return {**{name: str(one) for name, one in parts.items() if one is not None}, "forms": forms}


def worst(verdicts: Iterable[Verdict | None]) -> Verdict | None:
    """The verdict on several things; None of none."""
    found = set(verdicts)
    return next((verdict for verdict in WORST_FIRST if verdict in found), None)


def merge_parts(several: Iterable[Parts | None]) -> Parts | None:
    """Of all cases; None where nothing was falsified."""
    found = [one for one in several if one is not None]
    if not found:
        return None
    forms = {form: worst(one.forms.get(form) for one in found) for form in Form}
    return Parts(
        worst(one.stated for one in found),
        worst(one.premises for one in found),
        worst(one.sharper for one in found),
        {form: verdict for form, verdict in forms.items() if verdict is not None},
    )


def parts_on(
    case: Any, claims: Iterable[Claim], part_of: Callable[[str], Part], states: Mapping[str, str] | None
) -> Parts:
    """The verdicts on one case.

    Args:
        claims: all that were made on it.
        part_of: of a claim, by its name.
        states: the claims of the stated conclusion, and when each is made; none where no source states one, None where
            nobody has said.
    """
    made = list(claims)
    by_part = {part: worst(claim.verdict for claim in made if part_of(claim.name) is part) for part in Part}
    stated, premises = by_part[Part.STATED], by_part[Part.PREMISE]
    names = {claim.name for claim in made}
    missing = any(name not in names and _is_due(when, case) for name, when in (states or {}).items())
    if states is not None and not states:
        stated = None
    elif premises is Verdict.FALSIFIED or stated is None or (missing and stated is not Verdict.FALSIFIED):
        stated = Verdict.INCONCLUSIVE
    forms = {form: worst(claim.verdict for claim in made if claim.form is form) for form in Form}
    return Parts(stated, premises, by_part[Part.SHARPER], {form: one for form, one in forms.items() if one is not None})


def _is_due(when: str, case: Any) -> bool:
    """Whether a claim that was not made should have been; where that cannot be decided, it should."""
    if not isinstance(when, Condition):
        return True
    try:
        return when.holds(case)
    except Exception:
        return True


def explain_part(part: Part, form: Form, parts: Parts, source: str) -> str:
    """What a falsified claim says about its statement, for a reader who might take it for more.

    Args:
        part, form: of the claim.
        parts: the verdicts on the case.
        source: who states the conclusion, ``the paper`` say.
    """
    if parts.stated is None:
        return f"a claim of ours, which {source} does not state"
    if part is Part.STATED:
        own = f"{source}'s own conclusion"
        if parts.stated is not Verdict.FALSIFIED:
            return f"{own}, not decided on this case, as a premise fails"
        return own if form in (Form.EXACT, Form.LIMIT) else f"{own}, in its {form} form"
    state = {
        Verdict.UPHELD: "is upheld on this case",
        Verdict.FALSIFIED: "is falsified on this case, too",
    }.get(parts.stated, "is not decided on this case")
    what = "a premise, not what is concluded" if part is Part.PREMISE else "a sharper form of ours"
    return f"{what}; {source}'s conclusion {state}"
