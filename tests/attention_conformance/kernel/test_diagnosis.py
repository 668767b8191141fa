"""What is said of a failing call, by hand: which numbers, and which guesses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from attention_conformance.calls.attention_call import AttentionCall
from attention_conformance.calls.attention_calls import Numbers, Sizes, tensors
from attention_conformance.claims.agreement import GRADIENTS, OUTPUT
from attention_conformance.kernel.diagnosis import _by_numbers, _by_size, _of_log_sum_exp, _where
from attention_conformance.kernel.trace import QUANTITIES, Entry, Trace


def call(T: int = 5, **further: Any) -> AttentionCall:
    return tensors(Sizes(B=1, H=2, G=2, L=3, T=T, E=4, M=4), Numbers.NORMAL, seed=0).replace(**further)


def entry(claim: str, theirs: Any, due: Any, given: AttentionCall) -> Entry:
    return Entry(claim, given, QUANTITIES[claim], np.array(theirs), np.array(due), np.full(np.shape(due), 1e-9))


def found(*entries: Entry, falsified: tuple[str, ...] = (), given: AttentionCall | None = None) -> Trace:
    names = falsified or tuple(one.claim for one in entries)
    return Trace("output", None, (given or call(),), (None,), names, entries)


def test_where_no_number_is_due_the_first_claim_is_told() -> None:
    two = found(falsified=("same-bits", "inputs-are-unchanged"))
    assert _where(two) == "the same call twice gives other bits"
    assert _where(found(falsified=("unheard-of", "same-bits"))) == "unheard-of does not hold"


def test_others_are_told_likewise() -> None:
    one = entry(GRADIENTS[0], np.full((1, 1, 1, 2), 3.0), np.full((1, 1, 1, 2), 1.0), call())
    other = entry(GRADIENTS[1], np.zeros((1, 1, 1, 2)), np.ones((1, 1, 1, 2)), call())
    assert (
        _where(found(one)) == "dQ at (b, h, l, e) = (0, 0, 0, 0) is 3 where 1 is due, 2e+09 times what rounding allows"
    )
    assert _where(found(one, other)) == _where(found(one)) + "; dK likewise"


@pytest.mark.parametrize(
    ("T", "block"), [(5, 0), (6, 0), (7, 8), (8, 8), (9, 8), (10, 0), (14, 0), (15, 16), (17, 16), (18, 0), (127, 128)]
)
def test_lengths_next_to_those_of_blocks(T: int, block: int) -> None:
    said = list(_by_size(call(T)))
    assert len(said) == (block > 0)
    if block:
        assert said[0].startswith(f"a block of {block}: no smaller failing call than one with keys T = {T} ")


@pytest.mark.parametrize(("factor", "base"), [(1 / math.log(2), True), (2.0, False), (1.0, False)])
def test_a_logarithm_to_the_base_two_is_recognised(factor: float, base: bool) -> None:
    due = np.array([[[1.5, -2.0, 1e-5]]])
    said = list(_of_log_sum_exp(found(entry("log-sum-exp", due * factor, due, call()))))
    assert ("the logarithm is to the base 2" in said) is base
    assert said[-1].startswith("the scale enters the log-sum-exp")


def test_nothing_known_is_no_sign_of_another_base() -> None:
    due = np.full((1, 1, 2), 1e-5)
    assert len(list(_of_log_sum_exp(found(entry("log-sum-exp", due, due, call()))))) == 1


def test_guesses_from_what_a_call_has() -> None:
    """Only of what hides keys, is added or caps in this call; nothing where no number is due."""
    wrong = np.zeros((1, 2, 3, 4)), np.ones((1, 2, 3, 4))
    plain, causal = call(query=np.zeros((1, 2, 3, 4))), call(query=np.zeros((1, 2, 3, 4)), causal=True)
    assert list(_by_numbers(found(entry(OUTPUT, *wrong, plain), given=plain))) == []
    assert list(_by_numbers(found(entry(OUTPUT, *wrong, causal), given=causal))) == ["which keys the causal mask hides"]
    assert list(_by_numbers(found(falsified=(OUTPUT,), given=causal))) == []
    capped = plain.replace(softcap=2.0)
    assert list(_by_numbers(found(entry(OUTPUT, *wrong, capped), given=capped))) == ["where the cap is applied"]
    infinite = entry(OUTPUT, np.full((1, 2, 3, 4), np.inf), wrong[1], plain)
    assert "overflows" in next(iter(_by_numbers(found(infinite, given=plain))))
