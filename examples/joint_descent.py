"""Conjecture on joint training: how fast the prompt grows under joint gradient descent, which the paper leaves open.

The prompt p and the head v are trained together. In the paper's Figure 3 (and in the statement
`conjecture-joint-descent`) each gradient is divided by its norm, so that the norms of head and prompt grow at the same
rate. Here gradients are not normalized: the gradient flow v' = −∇_v L, p' = −∇_p L, the limit of gradient descent with
small steps, starts at p = 0 and v = v_mm, the max-margin head of the chosen tokens. Verify the conjecture with:

    theorems verify examples/joint_descent.py:logarithmic_prompt
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.integrate import BDF

from reference_attention.risk import scaled_gradient, softmax_weights
from reference_attention.svm.label_svm import label_svm
from theorems.api import (
    REFERENCE,
    Assumption,
    Case,
    Claim,
    Finding,
    Form,
    Implementation,
    Infeasible,
    LabelSvm,
    MaxMargin,
    at_least,
    head_gradient,
    joint_cases,
    max_margin,
    reason,
    statement,
)

EARLY, LATE = 1e2, 1e4
"""The values of ‖v‖/‖v_mm‖ at which head and prompt are examined; LATE is the square of EARLY."""
MOST_GRADIENTS = 10_000

HALVED = reason(
    "halved-when-squared",
    "½ max(½, deviation at ‖v‖ = 10² ‖v_mm‖) at ‖v‖ = 10⁴ ‖v_mm‖",
    "argued rate: a deviation that falls like a power of ‖v‖, or like 1/log‖v‖, is at least halved when ‖v‖ is squared,"
    " and does not rise again above ¼; with a wrong factor or direction the deviation does not fall",
)


def signed_tokens(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """Return the tokens times their input's label, Y_i x_it, (n, T, d), and those of the chosen tokens α, (n, d)."""
    assert case.dataset is not None
    tokens = case.dataset.Y[:, None, None] * case.dataset.X
    return tokens, tokens[np.arange(len(tokens)), case.chosen_tokens]


def all_support(case: Case) -> Finding:
    """Check that the chosen tokens of all inputs have the same label margin Y_i x_iα·v̄_mm, the largest possible, Γ.

    The SVM for v_mm is ATT-SVM of inputs with two tokens, Y_i x_iα and 0, so `max_margin` decides the assumption.
    """
    if case.dataset is None:
        return Finding(None, "the case has keys and scores only; give tokens X and labels Y")
    z = signed_tokens(case)[1]
    svm = max_margin(np.stack([z, 0 * z], axis=1), np.zeros(len(z), dtype=np.int64))
    if isinstance(svm, Infeasible):
        return Finding(False, "v_mm does not exist")
    idle = np.flatnonzero(~svm.neighbours[:, 1]).tolist()
    return Finding(not idle, f"inputs with label margin to spare: {idle or 'none'}")


def selects(case: Case) -> Finding:
    """Check that the gradient flow selects the chosen tokens α: their weights are at least ½ at the flow's end.

    The start decides which tokens the flow selects; Assumption C only makes α the selection of largest label margin.
    """
    assert case.dataset is not None
    svm = label_svm(signed_tokens(case)[1])
    assert isinstance(svm, LabelSvm)
    ends = [p for _, p in follow_descent(case, REFERENCE, svm)]
    if len(ends) < 2:
        return Finding(None, f"‖v‖ = {LATE:g} ‖v_mm‖ was not reached with {MOST_GRADIENTS} gradients")
    weight = float(softmax_weights(case.problem.keys, ends[-1])[np.arange(case.problem.n), case.chosen_tokens].min())
    return Finding(weight >= 0.5, f"the least weight of a chosen token is {weight:.3g} at ‖v‖ = {LATE:g} ‖v_mm‖")


@statement(
    "logarithmic-prompt",
    "plain joint descent goes to v_mm and p_mm, with p = 2 log‖v‖ p_mm + O(1)",
    source="open in the paper",
    assumptions=(
        "optimal-tokens",
        "separable",
        Assumption("all-support", "no input has label margin to spare", "Theorem 5", all_support),
        Assumption("flow-selects", "plain joint descent selects α", "own", selects),
    ),
    cases=joint_cases(max_n=3, max_T=3, max_d=3),
)
def logarithmic_prompt(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Under the assumptions of Theorem 5, and if α is selected, v/‖v‖ → v̄_mm and dp/d log‖v‖ → 2 p_mm.

    So the norm of the prompt grows only like 2 ‖p_mm‖ log‖v‖.

    *Heuristic.* Let Γ be the label margin of v̄_mm, and g_it = k_iα − k_it. Once α is selected, −∇_v L ≈ |ℓ'| Γ v̄_mm
    and −∇_p L ≈ |ℓ'| ‖v‖ Σ_it π_i δ_it e^{−g_it·p} g_it, with weights π_i of the inputs and score gaps δ_it at v̄_mm.
    With p = 2 log‖v‖ p_mm + z the exponentials of the SVM-neighbours are ‖v‖⁻² e^{−g_it·z}. In the time log‖v‖, z
    follows the gradient flow of a convex function and converges.
    """
    svm, separator = (
        under_test[label_svm](signed_tokens(case)[1]),
        under_test[max_margin](case.problem.keys, case.chosen_tokens),
    )
    assert isinstance(svm, LabelSvm)
    assert isinstance(separator, MaxMargin)
    rates, heads = [], []
    for v, p in follow_descent(case, under_test, svm):
        by_head, by_prompt = slopes(case, under_test, v, p)
        rates.append(by_prompt * np.linalg.norm(v) / (by_head @ v / np.linalg.norm(v)))
        heads.append(v - (v @ svm.direction) * svm.direction)
        chosen = under_test[softmax_weights](case.problem.keys, p)[np.arange(case.problem.n), case.chosen_tokens].min()
    unfinished = "" if len(rates) == 2 else f"‖v‖ = {LATE:g} ‖v_mm‖ was not reached with {MOST_GRADIENTS} gradients"
    if not unfinished and 0.1 < chosen < 0.9:
        unfinished = f"a chosen token still has weight {chosen:.3g} at ‖v‖ = {LATE:g} ‖v_mm‖: nothing is selected yet"
    if unfinished:
        yield Claim("prompt-rate", Form.LIMIT, 0.0, 0.0, HALVED, undecided=unfinished)
        return
    off = [np.linalg.norm(rate - 2 * separator.p) / separator.norm for rate in rates]
    yield at_least("prompt-rate", Form.LIMIT, max(0.5, off[0]) / 2, off[1], rounding=0.0, why=HALVED)
    aside = [np.linalg.norm(head) / svm.norm / size for head, size in zip(heads, (EARLY, LATE), strict=True)]
    yield at_least("head-direction", Form.LIMIT, max(0.5, aside[0]) / 2, aside[1], rounding=0.0, why=HALVED)


def slopes(case: Case, under_test: Implementation, v: np.ndarray, p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return −∇_v L and −∇_p L, divided by a common factor without which they would underflow."""
    problem, tokens = case.problem, signed_tokens(case)[0]
    by_head = head_gradient(tokens, under_test[softmax_weights](problem.keys, p), v)
    by_prompt = under_test[scaled_gradient](problem.keys, tokens @ v, problem.loss, p)
    top = max(float(by_head.log_scale), float(by_prompt.log_scale))
    return (
        -by_head.direction * np.exp(by_head.log_scale - top),
        -by_prompt.direction * np.exp(by_prompt.log_scale - top),
    )


def follow_descent(case: Case, under_test: Implementation, svm: LabelSvm) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield (v, p) where v·v̄_mm first exceeds EARLY times ‖v_mm‖, and where v·v̄_mm first exceeds LATE times ‖v_mm‖.

    The flow is integrated over the logarithm of arc length, which takes few steps.
    """
    # The head is written as r v̄_mm + w with w orthogonal to v̄_mm. As w is much smaller than r, it is a separate
    # variable of the integration, so that it has its own relative accuracy.
    d, along = len(svm.v), svm.direction

    def velocity(log_length: float, at: np.ndarray) -> np.ndarray:
        by_head, by_prompt = slopes(case, under_test, at[d] * along + at[:d], at[d + 1 :])
        moved = np.concatenate([by_head - by_head @ along * along, [by_head @ along], by_prompt])
        return np.asarray(moved / np.linalg.norm(moved) * svm.norm * np.exp(log_length))

    start = np.concatenate([np.zeros(d), [svm.norm], np.zeros(case.problem.d)])
    solver = BDF(velocity, 0.0, start, 50.0, rtol=1e-5, atol=1e-4)
    for size in (EARLY, LATE):
        while solver.y[d] < size * svm.norm:
            if solver.status != "running" or solver.nfev > MOST_GRADIENTS:
                return
            solver.step()
        yield solver.y[d] * along + solver.y[:d], solver.y[d + 1 :].copy()
