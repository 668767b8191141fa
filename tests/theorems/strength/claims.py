"""Stored cases of each statement, with the slack and tolerance of each claim on them."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from hypothesis import HealthCheck, Phase

from attention_conformance.calls.attention_call import AttentionCall
from generators.case import Case
from generators.hypothesis_driver import drive
from generators.user_data import as_text, subject_of
from reference_attention.files import from_json
from theorems.bounded import value_of
from theorems.core.check import check
from theorems.core.claim import Claim, Form, Verdict, at_least
from theorems.core.implementation import REFERENCE
from theorems.run.registry.lookup import statement_named
from theorems.run.registry.suite import statements

KEPT = Path(__file__).parent / "kept"
CASES, LARGEST = 3, 100
"""Number of stored cases of a statement, and the largest number of entries of their keys."""
DRAWN = 120
"""Number of drawn cases from which the stored cases are taken."""
SAME = 1e-3
"""Allowed relative change of a slack: solvers and searches end slightly elsewhere on another processor."""
MEAN = 0.02
"""Allowed relative change of a mean: searches end elsewhere on another processor, which changed no mean by 0.5 %."""
ROUNDING = 1e-6
"""Within a tolerance below this, slacks count as equal, since such slacks are rounding or a solver's error."""
TINY = 1e-20
"""Tolerances below this count as equal: they belong to zeros that are exact on one processor and not on another."""
UNSTEADY = {"minimised-path-is-lowest", "softmin-of-margins", "flow-rate", "stays-in-cone", "grows-along-general-svm"}
"""Claims whose slack depends on rounding: several points are about equally near to failing, or a run moves to and fro
across kinks, and rounding decides the phase.
"""
FACTOR = 4.0
"""Allowed factor between tolerances: if another point comes nearest to failing, its bound of rounding differs."""


@dataclass(frozen=True)
class Strength:
    """The slack and the tolerance of a claim on a case.

    Attributes:
        name, form: the claim's name and form.
        slack, tolerance: the claim's slack and tolerance; None where the claim was not decided.
        mean: the mean of left side − right side over all entries, as a share of the larger side; None where the claim
            is
            not an inequality of two arrays.
    """

    name: str
    form: str
    slack: float | None
    tolerance: float | None
    mean: float | None = None


def ids() -> list[str]:
    """Return the statements whose cases are problems, not calls of a kernel."""
    return [id for id, statement in statements().items() if statement.kernel is None or not statement.kernel.capability]


def strengths(id: str, case: Any) -> list[Strength]:
    """Return the strengths of all claims on the case, in order."""
    statement = statement_named(id)  # load the modules before means() replaces at_least in them
    with means() as slacks:
        claims = check(statement, case, REFERENCE).claims
    left = {name: iter(own) for name, own in slacks.items()}
    return [_strength(claim, next(left.get(claim.name, iter(())), None)) for claim in claims]


def _strength(claim: Claim, mean: float | None) -> Strength:
    decided = claim.verdict is Verdict.UPHELD and math.isfinite(claim.slack)
    slack, tolerance = (float(claim.slack), float(claim.tolerance)) if decided else (None, None)
    return Strength(claim.name, str(claim.form), slack, tolerance, mean)


@contextmanager
def means() -> Iterator[dict[str, list[float | None]]]:
    """Yield a dictionary that records, by claim, the mean slack of each call of ``at_least`` within the block."""
    slacks: dict[str, list[float | None]] = {}

    def recorder(name: str, form: Form, left: Any, right: Any, **further: Any) -> Claim:
        slacks.setdefault(name, []).append(_mean(value_of(left), value_of(right)))
        return at_least(name, form, left, right, **further)

    names = [name for name in sys.modules if name.startswith("theorems")]
    with ExitStack() as stack:
        for module in map(sys.modules.__getitem__, names):
            if getattr(module, "at_least", None) is at_least:
                stack.enter_context(mock.patch.object(module, "at_least", recorder))
        yield slacks


def _mean(left: Any, right: Any) -> float | None:
    with np.errstate(all="ignore"):
        larger = np.maximum(np.abs(left), np.abs(right))
        shares = (np.asarray(left, dtype=np.float64) - right) / np.where(larger > 0, larger, 1.0)
    known = shares[np.isfinite(shares)]
    return float(known.mean()) if known.size else None


def changes(id: str) -> list[str]:
    """Return a line for each claim whose strength differs from the stored one on most of the cases that make the claim.

    A difference on one case of three is ignored: on another processor another point may be the nearest to failing, or a
    search may end elsewhere.
    """
    pairs = [(by_claim_name(before.claims), by_claim_name(strengths(id, before.case))) for before in stored_cases(id)]
    lines = []
    for name in dict.fromkeys(name for before, now in pairs for name in (*before, *now)):
        both = [(before.get(name, []), now.get(name, [])) for before, now in pairs if name in before or name in now]
        off = [pair for pair in both if not _same(*pair)]
        if 2 * len(off) > len(both):
            lines.append(f"{name}: {_told(off[0][0])}, and now {_told(off[0][1])}")
    return lines


def by_claim_name(claims: list[Strength]) -> dict[str, list[Strength]]:
    """Group the strengths by the name of the claim; most claims are made once."""
    return {claim.name: [other for other in claims if other.name == claim.name] for claim in claims}


def _told(claims: list[Strength]) -> str:
    part_texts = [
        f"{claim.slack} ≥ −{claim.tolerance}, {claim.mean} in the mean ({claim.form})"
        if claim.slack is not None
        else "undecided"
        for claim in claims
    ]
    return " and ".join(part_texts) or "not made"


def _same(before: list[Strength], now: list[Strength]) -> bool:
    return len(before) == len(now) and all(map(_as_strong, before, now))


def _as_strong(a: Strength, b: Strength) -> bool:
    if a.slack is None or b.slack is None or a.tolerance is None or b.tolerance is None:
        return a == b
    low, high = sorted((a.tolerance, b.tolerance))
    near = high <= FACTOR * low or high < TINY
    if not _near(a, b):
        return False
    steady = a.name in UNSTEADY or abs(a.slack - b.slack) <= SAME * abs(a.slack) + 2 * min(high, ROUNDING)
    return a.form == b.form and near and steady


def _near(a: Strength, b: Strength) -> bool:
    """Return whether the means are close; those of exact claims are ignored, since they are means of roundings."""
    if a.mean is None or b.mean is None:
        return a.mean is b.mean
    return a.form == Form.EXACT or abs(a.mean - b.mean) <= MEAN * abs(a.mean) + ROUNDING


def drawn_cases(id: str) -> list[Any]:
    """Return a few small cases of the statement's own strategy: several inputs, one input, two tokens, other losses."""
    by_kind: dict[tuple[bool, bool, str], Any] = {}

    def visit(case: Any) -> None:
        assert not isinstance(case, AttentionCall)
        if not isinstance(case, Case):
            sizes = list(case.sizes.values())
            by_kind.setdefault((sizes[0] > 1, sizes[1] > 2, ", ".join(case.sizes)), case)
            return
        if case.problem.keys.size <= LARGEST:
            n, tokens, _ = case.problem.keys.shape
            by_kind.setdefault((n > 1, tokens > 2, case.problem.loss.name), case)

    drive(
        statement_named(id).cases(),
        visit,
        examples=DRAWN,
        seed=0,
        phases=[Phase.generate],
        unchecked=list(HealthCheck),
        near_copies=False,
    )
    kinds: list[tuple[bool, bool, str]] = []
    for several, more in ((True, True), (False, True), (True, False), (False, False)):
        kinds += [kind for kind in by_kind if kind[:2] == (several, more) and kind[2] not in [own[2] for own in kinds]][
            :1
        ]
    kinds += [kind for kind in by_kind if kind not in kinds]
    return [by_kind[kind] for kind in kinds[:CASES]]


@dataclass(frozen=True)
class Kept:
    """A case with the strengths of the claims made on it."""

    case: Any
    text: str
    claims: list[Strength]


def stored_cases(id: str) -> Iterator[Kept]:
    """Yield the stored cases of a statement, if there are any."""
    statement_named(id)  # loads the paper, which defines the kind of the data
    path = KEPT / f"{id}.json"
    for record in json.loads(path.read_text(encoding="utf-8")) if path.exists() else []:
        text = json.dumps(record["case"])
        yield Kept(subject_of(from_json(text)), text, [Strength(*claim) for claim in record["claims"]])


def keep(id: str, cases: list[Any]) -> None:
    """Store cases, by default drawn ones, with the current strengths of their claims."""
    records = [
        {"case": json.loads(as_text(case)), "claims": [list(astuple(claim)) for claim in strengths(id, case)]}
        for case in cases or drawn_cases(id)
    ]
    # Write the case in one line and each claim in another, so that a diff shows what has changed.
    parts = [
        f'{{"case": {json.dumps(record["case"])},\n "claims": [\n  '
        + ",\n  ".join(map(json.dumps, record["claims"]))
        + "]}"
        for record in records
    ]
    (KEPT / f"{id}.json").write_text("[" + ",\n".join(parts) + "]\n", encoding="utf-8")
