"""Ends of gradient flows on data with queries: the flows on W and on (K, Q), compared with the solutions of both SVMs.

References: *Transformers as Support Vector Machines*, (W-ERM), (KQ-ERM).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64

from generators.case import Case
from generators.finding import format_tokens
from generators.layer_weights import LayerWeights
from reference_attention.angles import one_minus_cosine
from reference_attention.query_dataset import QueryDataset
from reference_attention.svm.max_margin import MaxMargin, max_margin
from reference_attention.svm.nuclear_max_margin import NuclearMaxMargin, nuclear_max_margin
from reference_attention.training.descent import Stop
from reference_attention.training.factored_flow import factored_flow
from theorems.benchmark.measurements import far
from theorems.explanations.change_times import ChangeTimes, change_times
from theorems.explanations.selection import FollowedFlow

MOST_ENTRIES = 300
"""Largest number of entries of K and Q together for which their flow is followed; its Jacobian has as many rows."""
LEAST_SHARE = 1e-3
"""A singular value of W counts towards the rank of W if it is at least this share of the largest one."""


@dataclass(frozen=True)
class TrainedEnd:
    """Last point of the flow on W or on (K, Q), compared with max-margin solutions.

    Attributes:
        trained: what the flow trains, ``W`` or ``(K, Q)``.
        ended: how the flow ended, in words.
        selects: the token of largest weight of each input at the end; for (K, Q) the limit itself is not decided.
        norm: ‖W‖_F.
        rank: number of singular values of W that are at least a thousandth of the largest.
        frobenius: 1 − cos of the angle between W and W^mm, the solution of least Frobenius norm ‖W‖_F for the tokens
            ``selects``; None where no W separates these tokens.
        nuclear: 1 − cos of the angle between W and W_⋆, the solution of least nuclear norm ‖W‖_⋆ for the same tokens;
            None where W_⋆ is not proven unique.
        excess: the nuclear norm of W per unit of margin, relative to the least possible: ‖W‖_⋆/(m(W) ‖W_⋆‖_⋆) − 1, with
            m(W) the least margin of W; None without W_⋆ or if m(W) ≤ 0.
        changes: when the flow on (K, Q) changes the tokens of largest weight of its start; None if it keeps them.
    """

    trained: str
    ended: str
    selects: tuple[int, ...]
    norm: float
    rank: int
    frobenius: float | None
    nuclear: float | None
    excess: float | None
    changes: ChangeTimes | None = None

    @property
    def grows(self) -> bool:
        """Return whether the flow was followed to a large norm; otherwise it selects no tokens or is undecided."""
        return self.ended == str(Stop.NORM)

    def sentence(self, flow: str) -> str:
        """Say where the flow, which the sentence calls ``flow``, ends; without a full stop."""
        if self.ended == str(Stop.FAILED):
            return f"{flow} could not be followed beyond ‖W‖_F = {self.norm:.3g}, and where it ends is not decided"
        if not self.grows:
            return f"{flow} ends at a finite W ({self.ended}), of norm {self.norm:.3g}, and selects nothing"
        return f"{flow} ends ({self.ended}) with the largest weights at {format_tokens(self.selects)}"

    def as_json(self) -> dict[str, Any]:
        """Return every number in full for JSON."""
        return vars(self) | {"changes": None if self.changes is None else self.changes.as_json()}


def trained_ends(case: Case, path: FollowedFlow, weights: LayerWeights | None = None) -> tuple[TrainedEnd, ...]:
    """Return the ends of the flow on W and, if K and Q are small enough, of the flow on (K, Q); () without queries.

    (K, Q) start at the factors of the trained weights; without trained weights, at ``K0`` and ``Q0`` of the case;
    without these, at K = I and Q = W(0)ᵀ, scaled so that keys have size about one.
    """
    data, problem = case.queried, case.problem
    if data is None:
        return ()
    ends = [_end("W", str(path.flow.stop), data, path.flow.final.reshape(data.shape))]
    unit = math.sqrt(problem.key_scale)
    if weights is not None and weights.factors is not None:
        K, Q = weights.factors
    elif weights is None and "K0" in case.arrays and "Q0" in case.arrays:
        K, Q = case.arrays["K0"], case.arrays["Q0"]
    else:
        K, Q = np.eye(data.shape[0]) / unit, path.start.reshape(data.shape).T * unit
    if K.size + Q.size > MOST_ENTRIES:
        return tuple(ends)
    begin = math.hypot(float(np.linalg.norm(K)), float(np.linalg.norm(Q)))
    flow = factored_flow(data, K, Q, norm=max(math.sqrt(2 * far(problem, path.start)), 10 * begin))
    ended = "stationary at its start" if flow.stop is Stop.STATIONARY and len(flow.K) <= 2 else str(flow.stop)
    changes = change_times(problem, flow.W.reshape(len(flow.W), -1), flow.log_time)
    return (*ends, replace(_end("(K, Q)", ended, data, flow.W[-1]), changes=changes))


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
    rank = int((values > LEAST_SHARE * values[0]).sum())
    return TrainedEnd(trained, ended, tuple(alpha.tolist()), float(np.linalg.norm(W)), rank, frobenius, nuclear, excess)


def _least_margin(data: QueryDataset, W: Float64[np.ndarray, "d e"], alpha: Int64[np.ndarray, "n"]) -> float:
    logits = np.vecdot(data.X @ W, data.queries[:, None])
    chosen = np.take_along_axis(logits, alpha[:, None], axis=1)
    others = np.arange(data.X.shape[1]) != alpha[:, None]
    return float((chosen - logits)[others].min())


def ends_in_words(ends: tuple[TrainedEnd, ...]) -> str:
    """Return a paragraph on the ends of the flows on W and on (K, Q); empty without ends."""
    sentences = []
    for trained_end in ends:
        sentence = trained_end.sentence(
            "The flow on W" if trained_end.trained == "W" else "The flow on (K, Q), W = K Qᵀ,"
        )
        if trained_end.grows and trained_end.frobenius is None:
            sentence += ", which no W separates from the others"
        elif trained_end.grows:
            of = "" if trained_end.nuclear is None else f" and {trained_end.nuclear:.2g} to W_⋆, of least nuclear norm"
            sentence += f"; W has rank {trained_end.rank}, and 1 − cos is {trained_end.frobenius:.2g} to W^mm{of}"
            if trained_end.excess is not None:
                excess = f"{100 * trained_end.excess:.2g}%"
                sentence += f"; its nuclear norm is {excess} larger than the least possible for its margin"
        sentences.append(sentence)
    return ". ".join(sentences) + "." if sentences else ""
