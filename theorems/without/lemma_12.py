"""Lemma 12 without its assumptions; the lemma needs only one of them, that the path's prompt p_R selects α.

References: *Max-Margin Token Selection in Attention Mechanism*, Appendix C.2, Lemma 12.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from generators.case import Case
from generators.numbers import Style, entries
from theorems.bounded import exact, value_of
from theorems.core.claim import Claim, Form, Undecided, at_least
from theorems.core.implementation import Implementation
from theorems.rounding.attention_at import AttentionAt, Numbers
from theorems.without.free_mixing import assumption_c_over_supports_fails
from theorems.without.joint_drawing import plain_joint_cases
from theorems.without.not_selected import one_support, path_of, quadrant_claim, shorter_elsewhere
from theorems.without.weakening import Weakening, weaken


@st.composite
def _with_prompt(draw: DrawFn, separable: bool) -> Case:
    """Draw tokens, keys and a prompt, all of integers, the prompt perhaps times 4 or ¼."""
    case = draw(plain_joint_cases(n=(1, 3), T=draw(st.sampled_from((2, 3))), d=2, key_queries=not separable))
    p = draw(entries((case.problem.d,), Style.INTEGERS))
    return case.replace(arrays=MappingProxyType({"prompt": p * draw(st.sampled_from((1.0, 4.0, 0.25)))}))


def _selects(case: Case) -> tuple[Numbers, Numbers]:
    """Return each input's softmax weight s_iα, (n,), and smallest margin (k_iα − k_it)·p over t ≠ α, (n,)."""
    keys, p, others = case.problem.keys, np.asarray(case.arrays["prompt"]), np.arange(case.problem.T)
    rows = np.take_along_axis(exact(keys), case.chosen_tokens[:, None, None], axis=1) - keys
    margins = np.where(others != case.chosen_tokens[:, None], rows @ p, np.inf)
    return np.exp(AttentionAt(case.problem, p[None]).log_weight_of(case.chosen_tokens)[0]), np.min(margins, axis=1)


def _outside(case: Case) -> float:
    """Return −min (k_iα − k_it)·p, which must not be positive, if every α_i has more than half the weight.

    If the prompt p gives some α_i at most half the weight, return −1 or less.
    """
    weights, margins = (value_of(x) for x in _selects(case))
    return float(-margins.min()) if (weights > 0.5).all() else min(-1.0, float(-np.abs(margins).max()))


def _quadrant_claim(case: Case, under_test: Implementation) -> Iterator[Claim]:
    weights, margins = _selects(case)
    if not (weights > 0.5).all():
        raise Undecided("quadrant", "the prompt does not select α", Form.EFFECTIVE)
    yield at_least("quadrant", Form.EFFECTIVE, margins, 0.0, points="input")


LEMMA_12 = Weakening("lemma-12", _quadrant_claim, "a prompt with s_iα > ½ for all i has (k_iα − k_it)·p ≥ 0")
any_tokens = LEMMA_12.without(
    "optimal-support-tokens",
    "Drop the assumption: it is superfluous, as the lemma is only about the softmax. Its hypothesis s_iα → 1 implies"
    " s_iα > ½ from some R₀ on. As weights add up to one, this implies s_it/s_iα = e^{−(k_iα − k_it)·p} < 1 for every"
    " t ≠ α. Labels, heads and label margins do not occur.",
    cases=_with_prompt(separable=True),
    fails=assumption_c_over_supports_fails,
    violation=_outside,
)
no_separator = LEMMA_12.without(
    "separable",
    "Drop the assumption: it is superfluous, as the lemma's hypothesis implies it. A prompt with s_iα > ½ for all i"
    " has (k_iα − k_it)·p > 0 for all i and t, so a multiple of it is feasible for ATT-SVM(α). If ATT-SVM(α) is"
    " infeasible, no prompt satisfies the lemma's hypothesis, and the lemma holds vacuously.",
    cases=_with_prompt(separable=False),
    violation=_outside,
)


@weaken(
    "lemma-12",
    without="prompt-selects",
    refutes="from some R₀ on (k_iα − k_it)·p_R ≥ 0 for all i and t",
    cases=one_support,
    violation=shorter_elsewhere,
)
def another_quadrant(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let p_R not select α, which is the only assumption that the lemma needs.

    p_R is the prompt of the joint path at radius R. Consider a non-support, an input whose label margin is not the
    smallest. If selecting another of its tokens leaves label margin to spare and gives the supports a wider margin, p_R
    selects this token: at every R it lies in the quadrant of prompts that prefer this token.
    """
    path = path_of(case)
    if path is not None:
        yield quadrant_claim(path[0])
