"""Predicates of assumptions on tokens X, labels Y and head v: the assumptions of Lemma 2, and Assumption C.

References: *Max-Margin Token Selection in Attention Mechanism*, Lemma 2/11, Assumption C, Theorems 5 and 6.
"""

from __future__ import annotations

import math

import numpy as np
from flint import fmpq, fmpq_mat
from jaxtyping import Float64

from generators.case import Case
from generators.finding import Finding, format_tokens, fraction, number, vector
from generators.label_margin import LabelMargin, label_margin
from generators.margin_assumptions import Vector, checked_margins, difference_rows, dot, exact_vector
from generators.optimal_tokens import token_optimality
from reference_attention.exact import rational, rational_matrix, to_floats
from reference_attention.problem import Dataset
from reference_attention.risk import softmax_weights

NO_DATASET = "the case has keys and scores only; give tokens X, labels Y and head v"
WITH_QUERIES = "the case has queries and trains W; the assumption is about a prompt p: give X, Y and v without queries"
MOST_VERTICES = 4096
"""The largest number of selections (one token per input) at which bounds for Assumption C are compared."""
MOST_SWAPS = 64
"""The largest number of selections tried to refute Assumption C; each differs from the chosen tokens α at one input."""
FAR = 40
"""The margin with which a refuting prompt selects tokens, so that each other token has a weight of at most e^{−40}."""
Floats = Float64[np.ndarray, "k"]


def _without_dataset(case: Case) -> Finding:
    """Return the finding "not established" for a case without a dataset, with a text that names the arrays to give."""
    return Finding(None, NO_DATASET if case.queried is None and case.sequence is None else WITH_QUERIES)


def positive_labels(case: Case) -> Finding:
    """Check that all labels Y_i are 1."""
    if case.dataset is None:
        return _without_dataset(case)
    negative = np.flatnonzero(case.dataset.Y < 0)
    if negative.size:
        return Finding(False, f"label {int(negative[0])} is -1")
    count = case.dataset.Y.size
    return Finding(True, "the only label is +1" if count == 1 else f"all {count} labels are +1")


def head_in_key_range(case: Case) -> Finding:
    """Decide over the rationals whether v ∈ range(Wᵀ); a z with W z = 0 and v·z ≠ 0 proves the contrary."""
    if case.dataset is None:
        return _without_dataset(case)
    if case.dataset.W is None:
        return Finding(True, "v is orthogonal to the kernel of W, which has dimension 0")
    W, v = rational_matrix(case.dataset.W), exact_vector(case.dataset.v)
    reduced, rank = W.rref()
    for z in _kernel(reduced, int(rank)):
        if dot(v, z) != 0:
            exact = {"z": [str(x) for x in z], "v·z": str(dot(v, z))}
            return Finding(False, f"z = {vector(z)} has W z = 0 but v·z = {fraction(dot(v, z))}", exact)
    return Finding(True, f"v is orthogonal to the kernel of W, which has dimension {W.ncols() - int(rank)}")


def _kernel(reduced: fmpq_mat, rank: int) -> list[Vector]:
    """Return a basis of {z : A z = 0} from the reduced row echelon form of A."""
    entries, width = reduced.tolist(), reduced.ncols()
    pivots = [next(j for j in range(width) if entries[r][j] != 0) for r in range(rank)]
    basis = []
    for free in (j for j in range(width) if j not in pivots):
        z = [fmpq(0)] * width
        z[free] = fmpq(1)
        for r, j in enumerate(pivots):
            z[j] = -entries[r][free]
        basis.append(z)
    return basis


def optimal_tokens(case: Case) -> Finding:
    """Decide Assumption C: for some ν > 0 and every p the label margin on (x_i^p) is ≤ Γ − ν max_i(1 − s_iα_i).

    Here x_i^p = Σ_t s_it x_it is the output of attention at the prompt p with softmax weights s_it, the label margin is
    the largest min_i Y_i v·x_i^p of a unit vector v, and Γ is the label margin on the chosen tokens x_iα. The
    assumption is about all p, so sampling proves nothing.

    *Holds* by convexity. For any λ in the simplex the label margin on (x_i^p) is at most F(s) = ‖Σ λ_i Y_i
    Σ_t s_it x_it‖ (duality). Let λ be the duals of the SVM for v_mm, divided by their sum, so that F(α) = Γ. F is
    convex in each s_i, so F(s) ≤ Σ over selections σ (one token per input) of P_s(σ) F(σ), where P_s(σ) = Π s_iσ_i, and
    P_s(σ ≠ α) ≥ max_i(1 − s_iα_i). If F(σ) < Γ at every σ ≠ α, C holds with ν = Γ − max_{σ≠α} F(σ). An example is x_iα
    = Y_i u* with a common u* and shorter other tokens.

    *Fails* if some input i has Y_i v_mm·x_iα_i > 1 (strictly more than needed), one prompt direction selects α at every
    input, and another selects α at every input except i. Between these two directions lies a direction that ties α_i
    with another token at input i and selects α elsewhere. Along this direction, with a finite offset, 1 − s_iα_i keeps
    a small positive value at which input i does not limit the label margin, so the label margin tends to Γ. C also
    fails if another token can be selected at input i, with α elsewhere, without loss of label margin: then 1 − s_iα_i →
    1. In both cases the finding names a prompt p.
    """
    return _establish(case, supports_only=False)


def optimal_support_tokens(case: Case) -> Finding:
    """Decide Assumption C as for ``optimal-tokens``, but only over the inputs that support v_mm (Theorem 6)."""
    return _establish(case, supports_only=True)


def _establish(case: Case, *, supports_only: bool) -> Finding:
    """Decide Assumption C by bounds at selections or, if these decide nothing, by a certificate or a refuting prompt.

    :func:`optimal_tokens` describes the bounds; :mod:`generators.optimal_tokens` computes the certificate and the
    prompt.
    """
    finding = _by_selections(case, supports_only=supports_only)
    if finding.holds is not None or case.dataset is None:
        return finding
    other = token_optimality(case, supports_only=supports_only)
    if other.holds is None:
        return finding
    return Finding(other.holds, other.evidence, {} if other.witness is None else {"p": other.witness.tolist()})


def _by_selections(case: Case, *, supports_only: bool) -> Finding:
    data = case.dataset
    if data is None:
        return _without_dataset(case)
    alpha = case.chosen_tokens
    features = data.Y[:, None] * data.X[np.arange(len(alpha)), alpha]
    label = label_margin(features)
    if label is None:
        return Finding(
            False,
            f"the features x_iα of α = {format_tokens(alpha)} are not separated by any head: Γ does not exist",
        )
    slack = [i for i, m in enumerate(label.margins) if m > 1]
    if slack and not supports_only:
        witness = _tying_prompt(case, slack, label)
        if witness is not None:
            i, t, p = witness
            why = f"input {i} has label margin {number(label.margins[i], 1)}·Γ; p ties its tokens {alpha[i]} and {t}"
            evidence = f"{why} and selects α at all other inputs: {_no_nu(case, p, label, i)}"
            return Finding(False, evidence, {"p": p.tolist()})
        swapped = _refute_by_swap(case, list(range(len(alpha))), label)
        if swapped is not None:
            return swapped
        return Finding(None, f"input {slack[0]} is not a support of v_mm; no prompt was found that ties its α only")
    finding = _at_vertices(data, alpha.tolist(), label)
    if finding.holds is None:
        inputs = [i for i, m in enumerate(label.margins) if m == 1] if supports_only else list(range(len(alpha)))
        return _refute_by_swap(case, inputs, label) or finding
    return finding


def _tying_prompt(case: Case, slack: list[int], label: LabelMargin) -> tuple[int, int, Floats] | None:
    """Return (i, t, p) such that p ties token t with α_i at an input i of ``slack`` and selects α at all other inputs.

    ``slack`` lists the inputs of label margin above Γ. Both α, and α with another token at input i, must be separable.
    On the segment from p_mm(α) to a direction that selects the other token, t is the first token to tie with α_i; at
    that point every other input still selects α. The prompt p is a large multiple of this point plus c p_mm(α) for an
    offset c, so that the weight s_iα of α_i has 1 − s_iα ≤ (T − 1) e^{−c}, and input i does not limit the label margin.
    Return None if there is no such p.
    """
    keys, alpha = case.problem.keys, case.chosen_tokens
    separator = checked_margins(keys, alpha).p
    if separator is None:
        return None
    for i in slack:
        for u in range(case.problem.T):
            if u == alpha[i]:
                continue
            other = alpha.copy()
            other[i] = u
            end = checked_margins(keys, other).p
            if end is None:
                continue
            rows = difference_rows(keys, alpha)
            margins = {
                t: (dot(rows[i, t], separator), dot(rows[i, t], end)) for t in range(case.problem.T) if t != alpha[i]
            }
            share, t = min((a / (a - b), t) for t, (a, b) in margins.items() if b < 0)
            along = [(1 - share) * a + share * b for a, b in zip(separator, end, strict=True)]
            elsewhere = min((dot(row, along) for (j, _), row in rows.items() if j != i), default=fmpq(1))
            room, drop = float(label.margins[i] - 1), _largest_drop(case, label, i)
            offset = math.log(max(drop * len(margins) / room, 1.0))
            far = FAR / elsewhere
            p = [far * a + rational(offset) * b for a, b in zip(along, separator, strict=True)]
            return i, t, to_floats(p)
    return None


def _refute_by_swap(case: Case, inputs: list[int], label: LabelMargin) -> Finding | None:
    """Refute Assumption C by another token that can be selected at one of ``inputs`` without loss of label margin."""
    data, alpha = case.dataset, case.chosen_tokens
    assert data is not None
    keys, chosen = case.problem.keys[inputs], alpha[inputs]
    signed = data.Y[inputs, None, None] * data.X[inputs]
    tries = [(k, t) for k in range(len(inputs)) for t in range(case.problem.T) if t != chosen[k]]
    for k, t in tries[:MOST_SWAPS]:
        other = chosen.copy()
        other[k] = t
        swapped = label_margin(signed[np.arange(len(inputs)), other])
        if swapped is None or swapped.norm_squared > label.norm_squared:
            continue
        separator = checked_margins(keys, other).p
        if separator is not None:
            p = to_floats([fmpq(FAR) * x for x in separator])
            ratio = math.sqrt(float(label.norm_squared / swapped.norm_squared))
            return Finding(
                False,
                f"at p = {vector(p)} and its multiples input {inputs[k]} selects token {t}, all others select α,"
                f" and the label margin tends to {ratio:.6g}·Γ",
                {"p": p.tolist()},
            )
    return None


def _largest_drop(case: Case, label: LabelMargin, i: int) -> float:
    """Return max_t Y_i v_mm·(x_iα − x_it), the most label margin that input i loses if it selects another token."""
    data = case.dataset
    assert data is not None
    outputs = [dot(label.v, exact_vector(x)) * rational(data.Y[i]) for x in data.X[i]]
    return float(outputs[int(case.chosen_tokens[i])] - min(outputs))


def _no_nu(case: Case, p: Floats, label: LabelMargin, i: int) -> str:
    """Describe why p, and prompts further along p's direction, refute every ν > 0 of Assumption C.

    At p the head v_mm keeps nearly the label margin Γ at all inputs but i, while 1 − s_iα does not tend to 0.
    """
    data, alpha = case.dataset, case.chosen_tokens
    assert data is not None
    n = len(alpha)
    weights = softmax_weights(case.problem.keys, p)
    v = np.array([float(x) for x in label.v]) / math.sqrt(float(label.norm_squared))
    outputs = data.Y[:, None] * (data.X @ v)
    lost = np.sum(weights * (outputs[np.arange(n), alpha][:, None] - outputs), axis=1)
    worst = max(0.0, float(np.max(np.delete(lost, i), initial=0.0)))
    return (
        f"at p = {vector(p)} that input has 1 − s_iα = {1 - weights[i, alpha[i]]:.3g}, but the label margin is at least"
        f" Γ − {worst:.1g}, and Γ in the limit: no ν > 0"
    )


def _at_vertices(data: Dataset, alpha: list[int], label: LabelMargin) -> Finding:
    """Compare F(σ) of :func:`optimal_tokens` with Γ, exactly, at every selection σ ≠ α of inputs that support v_mm."""
    tight = [i for i, m in enumerate(label.margins) if m == 1]
    if any(label.duals[i] == 0 for i in tight):
        idle = next(i for i in tight if label.duals[i] == 0)
        return Finding(None, f"input {idle} has label margin Γ but a zero dual, so bounds at selections do not prove C")
    vertices = data.X.shape[1] ** len(tight)
    if vertices > MOST_VERTICES:
        return Finding(None, f"there are more selections than the {MOST_VERTICES} that are tried")
    weighted = {
        (i, t): [label.duals[i] * rational(data.Y[i]) * x for x in exact_vector(data.X[i, t])]
        for i in tight
        for t in range(data.X.shape[1])
    }
    limit = label.norm_squared
    worst = fmpq(-1)
    worst_at: tuple[int, ...] = ()
    for choice in np.ndindex(*([data.X.shape[1]] * len(tight))):
        if all(t == alpha[i] for i, t in zip(tight, choice, strict=True)):
            continue
        total = [fmpq(0)] * data.X.shape[2]
        for i, t in zip(tight, choice, strict=True):
            total = [a + b for a, b in zip(total, weighted[i, t], strict=True)]
        size = dot(total, total)
        if size > worst:
            worst, worst_at = size, choice
    if worst >= limit:
        ratio = math.sqrt(float(worst / limit))
        where = dict(zip(tight, worst_at, strict=True))
        return Finding(
            None, f"the selection {where} has the bound {ratio:.6g}·Γ, not below Γ, so these bounds do not prove C"
        )
    gamma = 1 / math.sqrt(float(limit))
    nu = gamma * (1 - math.sqrt(float(worst / limit)))
    return Finding(True, f"Γ = {gamma:.6g}, ν = {nu:.6g} from {vertices - 1} selections")
