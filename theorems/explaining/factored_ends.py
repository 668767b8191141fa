"""Where training ends on data with queries: the flow on W and the flow on (K, Q), against both SVMs.

References: *Transformers as Support Vector Machines*, (W-ERM), (KQ-ERM).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64

from generators.case import Case
from generators.finding import format_tokens
from reference_attention.angles import one_minus_cosine
from reference_attention.query_dataset import QueryDataset
from reference_attention.svm.max_margin import MaxMargin, max_margin
from reference_attention.svm.nuclear_max_margin import NuclearMaxMargin, nuclear_max_margin
from reference_attention.training.descent import Stop
from reference_attention.training.factored_flow import factored_flow
from theorems.benchmark.measure import far
from theorems.explaining.selection import FollowedFlow

MOST_ENTRIES = 300
"""Entries of K and Q together beyond which their flow, which has a Jacobian of that many rows, is not followed."""
SEEN = 1e-3
"""A singular value of W that is this share of the largest counts, at the end of a flow."""


@dataclass(frozen=True)
class TrainedEnd:
    """Where a flow is at its end.

    Attributes:
        trained: ``W`` or ``(K, Q)``.
        ended: how the flow ended, in words.
        selects: the tokens of largest weight.
        norm: ‖W‖_F.
        rank: singular values of W that are a thousandth of the largest, or more.
        frobenius: 1 − cos∠(W, W^mm) of those tokens; None where nothing separates them.
        nuclear: 1 − cos∠(W, W_⋆); None where W_⋆ is not proven the only one.
        excess: ‖W‖_⋆/(m(W) C_⋆) − 1; None without C_⋆, or where a margin is not positive.
    """

    trained: str
    ended: str
    selects: tuple[int, ...]
    norm: float
    rank: int
    frobenius: float | None
    nuclear: float | None
    excess: float | None


def trained_ends(case: Case, path: FollowedFlow) -> tuple[TrainedEnd, ...]:
    """Of the flow on W that was followed, and of that on (K, Q); none for data without queries.

    (K, Q) start at ``K0`` and ``Q0`` of the case, otherwise at K = I and Q = W(0)ᵀ in the unit of the keys.
    """
    data, problem = case.queried, case.problem
    if data is None:
        return ()
    made = [_end("W", str(path.flow.stop), data, path.flow.final.reshape(data.shape))]
    unit = math.sqrt(problem.key_scale)
    if "K0" in case.arrays and "Q0" in case.arrays:
        K, Q = case.arrays["K0"], case.arrays["Q0"]
    else:
        K, Q = np.eye(data.shape[0]) / unit, path.start.reshape(data.shape).T * unit
    if K.size + Q.size > MOST_ENTRIES:
        return tuple(made)
    begin = math.hypot(float(np.linalg.norm(K)), float(np.linalg.norm(Q)))
    flow = factored_flow(data, K, Q, norm=max(math.sqrt(2 * far(problem, path.start)), 10 * begin))
    ended = "stationary at its start" if flow.stop is Stop.STATIONARY and len(flow.K) <= 2 else str(flow.stop)
    return (*made, _end("(K, Q)", ended, data, flow.W[-1]))


def _end(trained: str, ended: str, data: QueryDataset, W: Float64[np.ndarray, "d e"]) -> TrainedEnd:
    alpha = data.problem.selection_at(W.ravel())
    values = np.linalg.svd(W, compute_uv=False)
    least, frobenius, nuclear, excess = _least_margin(data, W, alpha), None, None, None
    if values[0] > 0:
        svm, other = max_margin(data.keys, alpha), nuclear_max_margin(data.keys, alpha)
        if isinstance(svm, MaxMargin):
            frobenius = float(one_minus_cosine(W.ravel(), svm.direction))
        if isinstance(other, NuclearMaxMargin):
            unique = other.W.ravel() / np.linalg.norm(other.W) if other.unique else None
            nuclear = None if unique is None else float(one_minus_cosine(W.ravel(), unique))
            excess = float(values.sum() / (least * other.norm) - 1) if least > 0 else None
    rank = int((values > SEEN * values[0]).sum())
    return TrainedEnd(trained, ended, tuple(alpha.tolist()), float(np.linalg.norm(W)), rank, frobenius, nuclear, excess)


def _least_margin(data: QueryDataset, W: Float64[np.ndarray, "d e"], alpha: Int64[np.ndarray, "n"]) -> float:
    logits = np.vecdot(data.X @ W, data.queries[:, None])
    chosen = np.take_along_axis(logits, alpha[:, None], axis=1)
    others = np.arange(data.X.shape[1]) != alpha[:, None]
    return float((chosen - logits)[others].min())


def ends_in_words(ends: tuple[TrainedEnd, ...]) -> str:
    """A paragraph on them; empty where there are none."""
    said = []
    for one in ends:
        how = "by itself" if one.trained == "W" else "as K Qᵀ"
        if one.frobenius is None:
            said.append(f"Trained {how} W selects {format_tokens(one.selects)}, which nothing separates")
            continue
        nuclear = "" if one.nuclear is None else f" and {one.nuclear:.2g} to W_⋆, of least nuclear norm"
        excess = "" if one.excess is None else f"; its nuclear norm is {one.excess:.2g} above the least for its margin"
        rank = f"of rank {one.rank} it has" if one.ended == str(Stop.NORM) else f"{one.ended}, it has"
        said.append(
            f"Trained {how} W selects {format_tokens(one.selects)}; {rank} 1 − cos = {one.frobenius:.2g} to"
            f" W^mm{nuclear}{excess}"
        )
    return ". ".join(said) + "." if said else ""
