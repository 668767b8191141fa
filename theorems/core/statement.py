"""Statements: the theorems of a paper as executable specifications.

A statement is one file, and it reads like the paper: a function whose docstring states the theorem, its effective
forms and the derivation, and whose body yields claims. ``@statement`` makes it; the command, the tests, the hunt, the
power table and the report find it where it stands (:mod:`theorems.run.registry`).
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
"""(case, implementation under test) → claims; a capability of kernels takes a call in place of the case."""


@dataclass(frozen=True)
class Statement:
    """A statement of a paper, or one in somebody's own file.

    Attributes:
        id: e.g. ``theorem-2``, or ``path.py:name``.
        title: what it says, in a few words.
        source: where the paper states it.
        assumptions: ids of :mod:`generators.assumptions` or of ``own_assumptions``; all must hold for the
            conclusion to be checked. :meth:`assumption` finds them.
        cases: a strategy for cases that satisfy the assumptions by construction.
        conclusion: yields the claims, given a case and the implementation under test.
        text: the statement, its effective form and its derivation (the docstring of the conclusion).
        from_data: the cases of one user-supplied case (e.g. one per locally optimal α); itself by default.
        aliases: other ids of the same statement.
        kernel: its use of an attention kernel, or why it uses none; None where nobody has said.
        survives: why it stays true under planted faults that it touches: by the name of the fault, or by its kind; for
            the suite's own statements see :mod:`theorems.faults.survivors`.
        needs: assumptions without which its words mean nothing, so that there is nothing to hunt: id → why.
        own_assumptions: assumptions that are not the suite's, by id.
        claims: the claims that it may make, by name, and when; empty where nobody has said.
        file: the file that it was read from; empty for the suite's own.
        states: the claims that are its conclusion as the source states it; empty where no source states it, None where
            nobody has said: then all its claims are.
        premises: the claims that data, solutions and runs are those that the conclusion speaks of. Claims that are
            neither are sharper forms of the suite's own.
        about: the class of its cases.
        refines: name of a claim → name of the limit without which it is not judged.
        varies: relations of :mod:`generators.metamorphic_relations` that may change its verdict: name → why.
        search: why a search or a run of the statement may be decided on a case and undecided on the case changed by a
            relation; empty where it has none. Where both are decided they have to agree.
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
    survives: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    needs: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    own_assumptions: Mapping[str, Assumption] = field(default_factory=lambda: MappingProxyType({}))
    claims: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    file: str = ""
    states: tuple[str, ...] | None = None
    premises: tuple[str, ...] = ()
    about: type[Subject] = Case
    refines: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    varies: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    search: str = ""

    @property
    def says_whose(self) -> bool:
        """True if the statement says which of its claims are the conclusion that its source states."""
        return self.states is not None or bool(self.premises)

    def part_of(self, claim: str) -> Part:
        """Return whether the claim of that name is a premise, the stated conclusion, or a sharper form of ours."""
        if claim in self.premises:
            return Part.PREMISE
        return Part.STATED if self.states is None or claim in self.states else Part.SHARPER

    @property
    def declarations(self) -> tuple[ClaimName, ...]:
        """The claims as declarations, for a statement that makes them on its own data."""
        return tuple(
            ClaimName(name, self.part_of(name), when, self.refines.get(name, "")) for name, when in self.claims.items()
        )

    @property
    def own_id(self) -> str:
        """The id without the file, which may be given by several paths."""
        return self.id.removeprefix(f"{self.file}:") if self.file else self.id

    def assumption(self, id: str) -> Assumption:
        """Return the assumption of that id: the statement's own, or else the suite's.

        Raises:
            InvalidInput: for an unknown id.
        """
        return self.own_assumptions.get(id) or assumption_named(id)


def always(*names: str) -> dict[str, str]:
    """Declare claims that are made on every case: ``claims=always("a", "b") | {"c": "where tokens tie"}``."""
    return dict.fromkeys(names, ALWAYS)


NO_WEIGHTS = {"queries-given": "it speaks of W, and without queries there is no W to train"}
"""Assumptions that some datum is given, without which no statement says anything: id → why."""

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
"""Assumptions for which :func:`generators.problems.cases` builds no cases, and the strategy that does."""


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
    survives: Mapping[str, str] = MappingProxyType({}),
    needs: Mapping[str, str] = MappingProxyType({}),
    claims: Mapping[str, str] | Sequence[ClaimName] = MappingProxyType({}),
    states: Sequence[str] | None = None,
    premises: Sequence[str] = (),
    about: type[Subject] = Case,
    varies: Mapping[str, str] = MappingProxyType({}),
    search: str = "",
) -> Callable[[Conclusion], Statement]:
    """Make the decorated conclusion a statement; in a paper's room, or in a file of one's own.

    The conclusion takes a case and the implementation under test and yields claims; its docstring states the theorem.

    Args:
        id: kebab-case; for a statement of one's own, none of the suite's.
        title: a few words on what it says; the docstring's first line if left out.
        source: where it is stated.
        assumptions: ids of the suite's, or :class:`Assumption` objects of one's own.
        cases: a strategy for cases that satisfy them (or a function that makes it). If left out,
            :func:`generators.problems.cases` builds some for the suite's assumptions; those on which an own one fails
            count as not applicable.
        from_data: the cases of one user-supplied case (e.g. one per locally optimal α); itself if left out.
        aliases: other ids of the same statement.
        kernel: its use of an attention kernel, or why it uses none.
        survives: why it stays true under planted faults, see :class:`Statement`; for the suite's own statements this is
            in :mod:`theorems.faults.survivors`.
        needs: assumptions without which its words mean nothing: id → why.
        claims: every claim that it may make: declarations of :mod:`theorems.core.claim_name`, or names and when each is
            made. A claim that is not listed is an error, and a run in which a listed one was never made says so. The
            list may be left out.
        states: where ``claims`` are names, those that are the conclusion as the source states it; if left out, all but
            the premises. The other claims are sharper forms of one's own. A falsified statement says which part the
            failed claim belongs to.
        premises: where ``claims`` are names, those that say that data, solutions and runs are those that the conclusion
            speaks of.
        about: the class of its cases, where the paper speaks of something else than keys and scores.
        varies: relations that may change its verdict, see :class:`Statement`.
        search: why a relation may change whether it is decided, see :class:`Statement`.

    Raises:
        InvalidInput: an id or an assumption that cannot be used, no docstring, assumptions that no strategy here
            builds, a name in ``states`` or ``premises`` that is not among ``claims``, or in both.
    """
    _check_id(id)
    refines = {} if isinstance(claims, Mapping) else _limits_refined(id, claims)
    if not isinstance(claims, Mapping):
        claims, states, premises = _read_declarations(id, claims, states, premises)
    _check_parts(id, claims, states, premises)
    when = MappingProxyType({str(name): condition for name, condition in claims.items()})
    ids, own_assumptions = _split_assumptions(assumptions)
    if about is not Case and cases is None:
        raise InvalidInput(f"statement {id}: no cases of {about.__name__} are built here; give a strategy, cases=….")
    strategy = _strategy(tuple(i for i in ids if i not in own_assumptions), cases, about)
    if from_data is not None and not callable(from_data):
        raise InvalidInput(f"statement {id}: from_data is no function; give one that yields cases.")

    def decorate(conclusion: Conclusion) -> Statement:
        text = conclusion.__doc__ or ""
        if not text.strip():
            raise InvalidInput(f"statement {id}: the conclusion has no docstring; state what it says there.")
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
            survives,
            {id: NO_WEIGHTS[id] for id in ids if id in NO_WEIGHTS} | dict(needs),
            own_assumptions,
            when,
            states=None if states is None else tuple(states),
            premises=tuple(premises),
            about=about,
            refines=MappingProxyType(refines),
            varies=varies,
            search=search,
        )

    return decorate


def alone(case: Subject) -> Iterator[Subject]:
    """Yield the given case, and no other."""
    yield case


def _check_id(id: str) -> None:
    if not isinstance(id, str) or not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", id):
        raise InvalidInput(f"statement: the id {id!r} is not kebab-case; give one like 'my-conjecture'.")


def _read_declarations(
    id: str, claims: Sequence[ClaimName], states: Sequence[str] | None, premises: Sequence[str]
) -> tuple[dict[str, str], tuple[str, ...], tuple[str, ...]]:
    """Return when each claim is made, the stated claims and the premises, read from declarations."""
    if isinstance(claims, str) or not all(isinstance(name, ClaimName) for name in claims):
        raise InvalidInput(f"statement {id}: claims are neither names with when each is made nor declarations.")
    if states is not None or premises:
        raise InvalidInput(f"statement {id}: its declared claims say which part they are; leave out states, premises.")
    twice = next((name for name in claims if claims.count(name) > 1), None)
    if twice is not None:
        raise InvalidInput(f"statement {id}: the claim {twice!r} is declared twice.")
    by_part = {part: tuple(str(name) for name in claims if name.part is part) for part in Part}
    return {str(name): name.when for name in claims}, by_part[Part.STATED], by_part[Part.PREMISE]


def _limits_refined(id: str, claims: Sequence[ClaimName]) -> dict[str, str]:
    """Return the names of the claims that refine a limit, each with the name of that limit."""
    refines = {str(name): str(name.refines) for name in claims if isinstance(name, ClaimName) and name.refines}
    for name, limit in refines.items():
        if limit not in claims or limit in refines:
            raise InvalidInput(f"statement {id}: {name!r} refines {limit!r}, which is no limit among its claims.")
    return refines


def _check_parts(id: str, claims: Mapping[str, str], states: Sequence[str] | None, premises: Sequence[str]) -> None:
    for option, names in (("states", states or ()), ("premises", premises)):
        if isinstance(names, str):
            raise InvalidInput(f"statement {id}: {option} is a text; give a tuple of names of claims.")
        for name in names:
            if name not in claims:
                raise InvalidInput(f"statement {id}: {option} has {name!r}, which is not among its claims; list it.")
    both = next((name for name in states or () if name in premises), None)
    if both is not None:
        raise InvalidInput(f"statement {id}: {both!r} is in states and in premises; leave it in one of them.")


def _split_assumptions(
    assumptions: Sequence[str | Assumption],
) -> tuple[tuple[str, ...], MappingProxyType[str, Assumption]]:
    """Return the ids of all assumptions, and the own ones by id."""
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
    """Return the predicate, made to raise where it returns no Finding: that is an error, not an answer."""

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
            raise InvalidInput(f"cases: none are built for {hard!r}; give cases={NEED_OWN_CASES[hard]}.")
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
