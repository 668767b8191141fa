"""What is claimed of a call in the states that take long: compiled, and made thousands of times.

The call is right without them, or nothing is claimed: what is wrong here is so because of the state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace

import numpy as np

from attention_conformance.claims.agreement import OUTPUT, same_bits
from generators.attention_call import REPEATS, State
from theorems.core.claim import Claim, Form, Verdict, at_least
from theorems.core.on_kernel import Answer
from theorems.core.tolerances import EXACT

RETURNS, EACH_TIME, UNCHANGED = "compiled-code-returns", "right-each-time", "inputs-are-unchanged"
RESULTS = [one.name for one in fields(Answer) if one.name not in ("changed", "failed", "others")]
Claims = Callable[[Answer], Iterator[tuple[str, Claim]]]
"""All that is claimed of the numbers of an answer, each with what it is about."""


def through_compiler(answer: Answer, claims: Claims, state: State) -> Iterator[Claim]:
    """What came of a call through ``torch.compile``.

    Args:
        answer: to the call.
        claims: of an answer.
        state: which backend it was.
    """
    returned = at_least(RETURNS, Form.EXACT, -float(bool(answer.failed)), 0.0, rounding=0.0, why=EXACT)
    yield replace(returned, detail=answer.failed)
    yield writes_nothing(answer)
    if not answer.failed:
        backend = f"backend {'aot_eager' if state is State.COMPILED else 'inductor'}"
        for _, claim in claims(answer):
            yield replace(claim, branch=backend if claim.name == OUTPUT else "")


def each_time(answer: Answer, claims: Claims, same_each_time: bool) -> Iterator[Claim]:
    """What came of a call that was made over and over: every answer is right.

    Args:
        answer: the first, with the others.
        claims: of an answer.
        same_each_time: whether all have the same bits, as the kernel declares.
    """

    def falsified_claims(one: Answer) -> list[Claim]:
        return [claim for _, claim in claims(one) if claim.verdict is Verdict.FALSIFIED]

    first = {name: x for name in RESULTS if (x := getattr(answer, name)) is not None}
    later = {name: np.stack([getattr(one, name) for one, _ in answer.others] or [x]) for name, x in first.items()}
    # What lies between two numbers that are within the bounds is, too.
    ends = [replace(answer, **{name: end(x, axis=0) for name, x in later.items()}) for end in (np.min, np.max)]
    suspect = any(map(falsified_claims, ends)) or any(
        (np.isnan(later[name]) != np.isnan(first[name])).any() for name in first
    )
    wrong = [(often, found) for one, often in answer.others if suspect and (found := falsified_claims(one))]
    times = sum(often for often, _ in wrong)
    claim = at_least(EACH_TIME, Form.EXACT, -float(times), 0.0, rounding=0.0, why=EXACT)
    if wrong:
        worst = max((one for _, found in wrong for one in found), key=_excess)
        how = f", {_excess(worst):.2g} times what rounding allows" if np.isfinite(_excess(worst)) else ""
        said = f"{times} of {REPEATS} equal calls are wrong, the worst by {-worst.slack:.3g} in {worst.name}{how}"
        claim = replace(claim, detail=said)
    yield claim
    yield writes_nothing(answer)
    for name, x in later.items():
        if same_each_time:
            yield same_bits("same-bits", x, np.broadcast_to(first[name], x.shape))


def writes_nothing(answer: Answer) -> Claim:
    """Nothing was written to what the kernel was given, or beside it."""
    return at_least(UNCHANGED, Form.EXACT, -float(len(answer.changed)), 0.0, rounding=0.0, why=EXACT)


def _excess(claim: Claim) -> float:
    return -claim.slack / claim.tolerance if claim.tolerance > 0 else np.inf
