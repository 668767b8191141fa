"""The excess risk of data with several queries per input, summed over groups of queries that see equally many tokens.

References: *Transformers as Support Vector Machines*, sequence outputs (appendix).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float64

from reference_attention import risk
from reference_attention.loss import Array, Loss
from reference_attention.sequence_dataset import SequenceDataset, SequencePart

LogExcess = Callable[[Array, Array, Loss, Array, Array], tuple[Array, Array]]
"""A function (keys, scores, loss, p, alpha) → sign and logarithm of L(p) − L_α, as :func:`.risk.log_excess_risk` is."""


def sequence_parts(data: SequenceDataset) -> Sequence[SequencePart]:
    """Return the problems of the pairs (i, k) of input and query, grouped by the number of tokens that a pair sees.

    An implementation under test may return the parts, and the pairs within a part, in any order, and may return
    several parts with the same number of tokens.
    """
    return data.parts


def sequence_excess(
    parts: Sequence[SequencePart], p: Float64[np.ndarray, "*b d"], log_excess: LogExcess = risk.log_excess_risk
) -> tuple[Float64[np.ndarray, "*b"], Float64[np.ndarray, "*b"]]:
    """Return sign and logarithm of L(W) − L_⋆, where L_⋆ is the risk if all weight is on the optimal tokens.

    Args:
        parts: the problems of the pairs of input and query, grouped by the number of tokens seen.
        p: vec(W), shape (*b, d).
        log_excess: the function that returns sign and logarithm of L − L_⋆ of a single problem.
    """
    excesses = [log_excess(q.problem.keys, q.problem.scores, q.problem.loss, p, q.problem.optimal) for q in parts]
    signs = np.stack([np.asarray(sign, dtype=np.float64) for sign, _ in excesses])
    shares = np.log([part.share for part in parts]).reshape(-1, *(1 for _ in p.shape[1:]))
    sizes = np.where(signs == 0, -np.inf, np.stack([np.asarray(size) for _, size in excesses]) + shares)
    unit = np.max(sizes, axis=0)
    unit = np.where(np.isfinite(unit), unit, 0.0)
    with np.errstate(divide="ignore"):
        total = np.sum(signs * np.exp(sizes - unit), axis=0)
        return np.asarray(np.sign(total)), np.asarray(np.log(np.abs(total)) + unit)
