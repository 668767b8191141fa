"""The claims about a call in the slow states: compiled, or repeated thousands of times.

The claims are made only if the call's results are right without the state, so that every failure is due to the state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace

import numpy as np

from attention_conformance.calls.answer import Answer
from attention_conformance.calls.attention_call import REPEATS, State
from attention_conformance.claims.agreement import OUTPUT, same_bits
from theorems.core.claim import Claim, Form, Verdict, at_least
from theorems.core.tolerances import EXACT

RETURNS, EACH_TIME, UNCHANGED = "compiled-code-returns", "right-each-time", "inputs-are-unchanged"
SETTINGS_UNCHANGED = "settings-are-unchanged"
RESULTS = [
    field.name for field in fields(Answer) if field.name not in ("changed", "changed_settings", "failed", "others")
]
Claims = Callable[[Answer], Iterator[tuple[str, Claim]]]
"""Function from an answer to all claims about the answer's numbers, each with the capability it concerns."""


def through_compiler(answer: Answer, claims: Claims, state: State) -> Iterator[Claim]:
    """Yield the claims about a call of the kernel compiled by ``torch.compile``.

    Args:
        answer: the answer to the call.
        claims: returns the claims about an answer.
        state: the state, which determines the compiler's backend.
    """
    returned = at_least(RETURNS, Form.EXACT, -float(bool(answer.failed)), 0.0, rounding=0.0, why=EXACT)
    yield replace(returned, detail=answer.failed)
    yield writes_nothing(answer)
    if not answer.failed:
        backend = f"backend {'aot_eager' if state is State.COMPILED else 'inductor'}"
        for _, claim in claims(answer):
            yield replace(claim, branch=backend if claim.name == OUTPUT else "")


def each_time(answer: Answer, claims: Claims, same_each_time: bool) -> Iterator[Claim]:
    """Yield the claims that every answer to a call that was repeated many times is right.

    Args:
        answer: the first answer; ``answer.others`` holds the later answers that differ from the first.
        claims: returns the claims about an answer.
        same_each_time: whether the kernel declares that all answers have the same bits.
    """

    def falsified_claims(outcome: Answer) -> list[Claim]:
        return [claim for _, claim in claims(outcome) if claim.verdict is Verdict.FALSIFIED]

    first = {name: x for name in RESULTS if (x := getattr(answer, name)) is not None}
    later = {name: np.stack([getattr(other, name) for other, _ in answer.others] or [x]) for name, x in first.items()}
    # Judge the smallest and the largest number of each entry: if both are within the bounds, so are all others.
    ends = [replace(answer, **{name: end(x, axis=0) for name, x in later.items()}) for end in (np.min, np.max)]
    suspect = any(map(falsified_claims, ends)) or any(
        (np.isnan(later[name]) != np.isnan(first[name])).any() for name in first
    )
    wrong = [(often, falsified) for other, often in answer.others if suspect and (falsified := falsified_claims(other))]
    times = sum(often for often, _ in wrong)
    claim = at_least(EACH_TIME, Form.EXACT, -float(times), 0.0, rounding=0.0, why=EXACT)
    if wrong:
        worst = max((claim for _, falsified in wrong for claim in falsified), key=_excess)
        excess = f", {_excess(worst):.2g} times what rounding allows" if np.isfinite(_excess(worst)) else ""
        detail = f"{times} of {REPEATS} equal calls are wrong, the worst by {-worst.slack:.3g} in {worst.name}{excess}"
        claim = replace(claim, detail=detail)
    yield claim
    yield writes_nothing(answer)
    for name, x in later.items():
        if same_each_time:
            yield same_bits("same-bits", x, np.broadcast_to(first[name], x.shape))


def writes_nothing(answer: Answer) -> Claim:
    """Claim that the kernel wrote nothing to its arguments, or next to them in memory."""
    return at_least(UNCHANGED, Form.EXACT, -float(len(answer.changed)), 0.0, rounding=0.0, why=EXACT)


def changes_no_setting(answer: Answer) -> Claim:
    """Claim that the call changed no setting of PyTorch or of the process."""
    claim = at_least(SETTINGS_UNCHANGED, Form.EXACT, -float(len(answer.changed_settings)), 0.0, rounding=0.0, why=EXACT)
    return replace(claim, detail=f"changed: {', '.join(answer.changed_settings)}" if answer.changed_settings else "")


def _excess(claim: Claim) -> float:
    return -claim.slack / claim.tolerance if claim.tolerance > 0 else np.inf
