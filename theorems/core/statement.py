"""The class Statement and its decorator: theorems of a paper as executable specifications.

A statement is one file that reads like the paper. The docstring of its function states the theorem, the theorem's
effective forms (explicit inequalities at finite points) and their derivation; the body yields claims. ``@statement``
turns the function into a Statement, which the command and the tests find by its module (:mod:`theorems.run.registry`).
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from hypothesis.strategies import SearchStrategy

from generators.assumptions import ASSUMPTIONS, Assumption, Finding, assumption_named
from generators.case import Case
from generators.problems import cases as cases_with
from generators.subject import Subject
from reference_attention.errors import InvalidInput
from theorems.core.claim import Claim, unless_limit_is_open, until_undecided
from theorems.core.claim_name import ALWAYS, ClaimName
from theorems.core.implementation import Implementation
from theorems.core.kernel_use import KernelUse
from theorems.core.parts import Part

Conclusion = Callable[[Any, Implementation], Iterator[Claim]]
"""A function that yields claims for a case (for capabilities of kernels, a call) and the implementation under test."""


@dataclass(frozen=True)
class Statement:
    """A statement of a paper or of a user's file.

    Attributes:
        id: the id, such as ``theorem-2`` or ``path.py:name``.
        title: what the statement says, in a few words.
        source: the place in the paper that states it.
        assumptions: ids of assumptions, of :mod:`generators.assumptions` or of ``own_assumptions``. The conclusion is
            checked only on cases on which all of them hold.
        cases: a Hypothesis strategy for cases that satisfy the assumptions by construction.
        conclusion: a function that yields the claims, given a case and the implementation under test.
        text: the statement with its effective form and derivation: the docstring of the conclusion.
        from_data: a function that yields the cases to check when a user's data are given as one case, for example a
            case for each locally optimal α; by default the given case.
        aliases: other ids of the same statement.
        kernel: how the statement uses an attention kernel, or why it uses none; None if that is not declared.
        needs: reasons why the statement cannot be formulated without an assumption, so that no search for
            counterexamples can drop it, by the id of the assumption.
        own_assumptions: assumptions other than the suite's, by id.
        claims: for each claim, by name, the cases on which it is made, in words; empty if the statement does not
            declare its claims.
        file: the user's file that defines the statement; empty for statements of the suite.
        states: the names of the claims that are the conclusion as the source states it; empty if no source states the
            conclusion; None if that is not declared, and then all claims count as the conclusion.
        premises: the names of the claims that are premises: that data, solutions and runs are what the conclusion
            assumes. Claims in neither ``states`` nor ``premises`` are sharper claims of the suite's own.
        about: the class of the cases.
        refines: for each claim that is about the rate or next-order term of a limit, by name, the name of the claim
            about this limit; the former is judged only if the latter is decided.
    """

    id: str
    title: str
    source: str
    assumptions: tuple[str, ...]
    cases: Callable[[], SearchStrategy[Any]]
    conclusion: Conclusion
    text: str
    from_data: Callable[[Any], Iterator[Any]]
    aliases: tuple[str, ...] = ()
    kernel: KernelUse | None = None
    needs: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    own_assumptions: Mapping[str, Assumption] = field(default_factory=lambda: MappingProxyType({}))
    claims: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    file: str = ""
    states: tuple[str, ...] | None = None
    premises: tuple[str, ...] = ()
    about: type[Subject] = Case
    refines: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def says_whose(self) -> bool:
        """Return whether the statement declares which of its claims are the conclusion that its source states."""
        return self.states is not None or bool(self.premises)

    def part_of(self, claim: str) -> Part:
        """Return the part to which a claim belongs: premise, conclusion as the source states it, or sharper."""
        if claim in self.premises:
            return Part.PREMISE
        return Part.STATED if self.states is None or claim in self.states else Part.SHARPER

    @property
    def declarations(self) -> tuple[ClaimName, ...]:
        """The claims as declarations, for another statement that makes the same claims on its own kind of data."""
        return tuple(
            ClaimName(name, self.part_of(name), when, self.refines.get(name, "")) for name, when in self.claims.items()
        )

    @property
    def own_id(self) -> str:
        """The id without the path of a user's file, since several paths may lead to the same file."""
        return self.id.removeprefix(f"{self.file}:") if self.file else self.id

    def assumption(self, id: str) -> Assumption:
        """Return the assumption with this id: one of the statement's own, or else one of the suite's.

        Raises:
            InvalidInput: the id is unknown.
        """
        return self.own_assumptions.get(id) or assumption_named(id)


def always(*names: str) -> dict[str, str]:
    """Declare claims that are made on every case: ``claims=always("a", "b") | {"c": "where tokens tie"}``."""
    return dict.fromkeys(names, ALWAYS)


NO_WEIGHTS = {"queries-given": "the statement is about W, and without queries there is no W to train"}
"""Reasons, by the id of an assumption, why statements about W cannot be formulated without it; a value of ``needs``."""

NEED_OWN_CASES = {
    "direction-given": "generators.direction_cases.direction_cases()",
    "higher-neighbours": "generators.direction_cases.direction_cases(kinds=('higher',))",
    "not-locally-optimal-direction": "generators.direction_cases.direction_cases()",
    "wider-direction": "generators.direction_cases.pair_cases()",
    "decided-neighbours": "generators.direction_cases.pair_cases()",
    "prompt-selects": "generators.joint_cases.joint_cases(non_supports=True)",
    "descent-selects": "generators.joint_cases.joint_cases(non_supports=True)",
    "optimal-tokens-tied": "generators.tied_cases.tied_cases()",
}
"""The value of ``cases=`` for assumptions for which :func:`generators.problems.cases` builds no cases; for
messages."""


def statement(
    id: str,
    title: str = "",
    *,
    source: str = "own",
    assumptions: Sequence[str | Assumption] = (),
    cases: Callable[[], SearchStrategy[Any]] | SearchStrategy[Any] | None = None,
    from_data: Callable[[Any], Iterator[Any]] | None = None,
    aliases: tuple[str, ...] = (),
    kernel: KernelUse | None = None,
    needs: Mapping[str, str] = MappingProxyType({}),
    claims: Mapping[str, str] | Sequence[ClaimName] = MappingProxyType({}),
    states: Sequence[str] | None = None,
    premises: Sequence[str] = (),
    about: type[Subject] = Case,
) -> Callable[[Conclusion], Statement]:
    """Decorate a conclusion to make it a statement, of a paper or of a user's file.

    The conclusion takes a case and the implementation under test and yields claims; its docstring states the theorem.

    Args:
        id: an id in kebab-case that no statement of the suite has.
        title: a few words on what the statement says; by default the first line of the docstring.
        source: the place that states the theorem.
        assumptions: ids of assumptions of the suite, or :class:`Assumption` objects.
        cases: a Hypothesis strategy for cases that satisfy the assumptions, or a function that returns one. By default
            :func:`generators.problems.cases` builds cases for the suite's assumptions; cases on which another
            assumption fails count as not applicable.
        from_data: a function that yields the cases to check when a user's data are given as one case, for example a
            case for each locally optimal α; by default the given case.
        aliases: other ids of the same statement.
        kernel: how the statement uses an attention kernel, or why it uses none.
        needs: reasons why the statement cannot be formulated without an assumption, by the id of the assumption.
        claims: every claim that the statement may make: declarations of :mod:`theorems.core.claim_name`, or names with
            the cases on which each is made. If given, a claim that is not listed is an error, and a run reports listed
            claims that were never made.
        states: if ``claims`` are names, those that are the conclusion as the source states it; by default all but the
            premises. The other claims are sharper claims of the suite's own. A falsified statement reports to which of
            these parts the failed claim belongs.
        premises: if ``claims`` are names, those of the premises: that data, solutions and runs are what the conclusion
            assumes.
        about: the class of the cases, if the paper is about other data than keys and scores.

    Raises:
        InvalidInput: an id or an assumption cannot be used, the docstring is missing, no strategy of the suite builds
            cases for the assumptions, or a name in ``states`` or ``premises`` is not in ``claims``, or is in both.
    """
    _check_id(id)
    refines = {} if isinstance(claims, Mapping) else _limits_refined(id, claims)
    if not isinstance(claims, Mapping):
        claims, states, premises = _read_declarations(id, claims, states, premises)
    _check_parts(id, claims, states, premises)
    when = MappingProxyType({str(name): condition for name, condition in claims.items()})
    ids, own_assumptions = _split_assumptions(assumptions)
    if about is not Case and cases is None:
        raise InvalidInput(f"statement {id}: the suite builds no {about.__name__}; give a strategy for cases, cases=….")
    strategy = _strategy(tuple(i for i in ids if i not in own_assumptions), cases, about)
    if from_data is not None and not callable(from_data):
        raise InvalidInput(f"statement {id}: from_data is no function; give one that yields cases.")

    def decorate(conclusion: Conclusion) -> Statement:
        text = conclusion.__doc__ or ""
        if not text.strip():
            raise InvalidInput(f"statement {id}: the conclusion has no docstring; state the theorem in it.")
        full_title = title or inspect.cleandoc(text).partition("\n")[0].rstrip(".:")
        return Statement(
            id,
            full_title,
            source or "own",
            ids,
            strategy,
            unless_limit_is_open(until_undecided(conclusion), refines),
            text,
            from_data or alone,
            aliases,
            kernel,
            {id: NO_WEIGHTS[id] for id in ids if id in NO_WEIGHTS} | dict(needs),
            own_assumptions,
            when,
            states=None if states is None else tuple(states),
            premises=tuple(premises),
            about=about,
            refines=MappingProxyType(refines),
        )

    return decorate


def alone(case: Subject) -> Iterator[Subject]:
    """Yield only the case itself; this is the default of ``from_data``."""
    yield case


def _check_id(id: str) -> None:
    if not isinstance(id, str) or not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", id):
        raise InvalidInput(f"statement: the id {id!r} is not kebab-case; give one like 'my-conjecture'.")


def _read_declarations(
    id: str, claims: Sequence[ClaimName], states: Sequence[str] | None, premises: Sequence[str]
) -> tuple[dict[str, str], tuple[str, ...], tuple[str, ...]]:
    """Return from declarations: the condition of each claim, the stated claims and the premises, by name."""
    if isinstance(claims, str) or not all(isinstance(name, ClaimName) for name in claims):
        raise InvalidInput(f"statement {id}: give claims as declarations, or as a mapping from names to conditions.")
    if states is not None or premises:
        raise InvalidInput(f"statement {id}: declared claims have their part already; leave out states and premises.")
    twice = next((name for name in claims if claims.count(name) > 1), None)
    if twice is not None:
        raise InvalidInput(f"statement {id}: the claim {twice!r} is declared twice.")
    by_part = {part: tuple(str(name) for name in claims if name.part is part) for part in Part}
    return {str(name): name.when for name in claims}, by_part[Part.STATED], by_part[Part.PREMISE]


def _limits_refined(id: str, claims: Sequence[ClaimName]) -> dict[str, str]:
    """Return, by the name of each claim that refines a limit, the name of the claim about this limit."""
    refines = {str(name): str(name.refines) for name in claims if isinstance(name, ClaimName) and name.refines}
    for name, limit in refines.items():
        if limit not in claims or limit in refines:
            raise InvalidInput(f"statement {id}: {name!r} refines {limit!r}; name a listed claim that refines none.")
    return refines


def _check_parts(id: str, claims: Mapping[str, str], states: Sequence[str] | None, premises: Sequence[str]) -> None:
    for option, names in (("states", states or ()), ("premises", premises)):
        if isinstance(names, str):
            raise InvalidInput(f"statement {id}: {option} is a text; give a tuple of names of claims.")
        for name in names:
            if name not in claims:
                raise InvalidInput(f"statement {id}: {option} has {name!r}, which is not in claims; list it there.")
    both = next((name for name in states or () if name in premises), None)
    if both is not None:
        raise InvalidInput(f"statement {id}: {both!r} is in states and in premises; leave it in one of them.")


def _split_assumptions(
    assumptions: Sequence[str | Assumption],
) -> tuple[tuple[str, ...], MappingProxyType[str, Assumption]]:
    """Return the ids of all assumptions, and, by id, the assumptions given as objects, which are not the suite's."""
    if isinstance(assumptions, str) or not isinstance(assumptions, Sequence):
        raise InvalidInput("assumptions: give a tuple of ids or Assumption objects.")
    ids: list[str] = []
    by_id: dict[str, Assumption] = {}
    for assumption in assumptions:
        if isinstance(assumption, Assumption):
            if assumption.id in ASSUMPTIONS:
                raise InvalidInput(f"assumption: {assumption.id!r} is one of the suite's; choose another id.")
            by_id[assumption.id] = replace(assumption, check=_finding_of(assumption))
            ids.append(assumption.id)
        else:
            ids.append(assumption_named(assumption).id)
    twice = next((id for id in ids if ids.count(id) > 1), None)
    if twice is not None:
        raise InvalidInput(f"assumptions: {twice!r} is given twice.")
    return tuple(ids), MappingProxyType(by_id)


def _finding_of(assumption: Assumption) -> Callable[[Any], Finding]:
    """Wrap the predicate of an assumption so that it raises a TypeError if it does not return a Finding."""

    def check(case: Any) -> Finding:
        finding = assumption.check(case)
        if not isinstance(finding, Finding):
            kind = type(finding).__name__
            raise TypeError(
                f"the predicate of {assumption.id} returned a value of type {kind}; return Finding(holds, evidence)"
            )
        return finding

    check.__doc__ = assumption.check.__doc__
    check.__wrapped__ = assumption.check  # type: ignore[attr-defined]
    return check


def _strategy(
    ids: tuple[str, ...], cases: Callable[[], SearchStrategy[Any]] | SearchStrategy[Any] | None, about: type[Subject]
) -> Callable[[], SearchStrategy[Any]]:
    def of_that_class(value: Any) -> Any:
        if not isinstance(value, about):
            raise TypeError(f"the strategy drew a value of type {type(value).__name__}, not a {about.__name__}")
        return value

    if cases is None:
        hard = next((id for id in ids if id in NEED_OWN_CASES), None)
        if hard is not None:
            raise InvalidInput(f"cases: the suite builds none for {hard!r}; give cases={NEED_OWN_CASES[hard]}.")
        built = cases_with(assumptions=ids)
        return lambda: built
    if isinstance(cases, SearchStrategy):
        return lambda: cases.map(of_that_class)
    if not callable(cases):
        raise InvalidInput("cases: give a Hypothesis strategy of cases, or a function that makes one.")

    def strategy() -> SearchStrategy[Any]:
        result = cases()
        if not isinstance(result, SearchStrategy):
            raise TypeError(f"cases returned a value of type {type(result).__name__}, not a Hypothesis strategy")
        return result.map(of_that_class)

    return strategy
