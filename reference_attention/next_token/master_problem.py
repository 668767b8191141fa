"""The common problem behind next-token prediction, classification, and attention that predicts by total weight.

Context j is followed by one of its alternatives v ∈ V_j. Each alternative has a vector a_jv, a multiplicity m_jv and a
count, the number of times that v followed context j in the data. S_j ⊆ V_j is the set of the alternatives with positive
count, and z_j the first of them. With π_j the share of context j in all counts, p_jv the share of v in the counts of
context j, and the logit ℓ_jv(θ) = a_jv·θ + log m_jv, training minimises

    L(θ) = Σ_j π_j [log Σ_v e^{ℓ_jv(θ)} − Σ_v p_jv ℓ_jv(θ)],

which is convex. In next-token prediction a_jv = vec(e_v h_jᵀ), with e_v the v-th unit vector and h_j the embedding of
context j; every token is an alternative, of multiplicity 1. Classification is the same, with a single target per
context. In attention a_jv = vec(e_v e_kᵀ), with e_v the embedding of token v; the alternatives are the distinct tokens
v of a sample, whose last token is k.

References: Thrampoulidis, *Implicit Optimization Bias of Next-token Prediction in Linear Models*, arXiv 2402.18551; Li
et al., *Mechanics of Next Token Prediction with Self-Attention*, arXiv 2403.08081.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from flint import fmpq
from jaxtyping import Bool, Float64, Int64
from numpy.typing import ArrayLike

from reference_attention.errors import InvalidInput
from reference_attention.exact import rational
from reference_attention.outer_keys import OuterKeys
from reference_attention.problem import as_array, checked_array, refuse_truth_values

Vector = list[fmpq]
LEAST_EXPONENT = -1022
"""Least exponent e for which the product of any 53-bit integer and 2^e is a float."""
MOST_COUNTED = 2**40
"""Upper bound of the sum of all counts; below it, sums of counts and products of two counts are exact in int64 and
float64."""


@dataclass(frozen=True, eq=False, init=False)
class MasterProblem:
    """Contexts, their alternatives, and how often each alternative followed its context.

    Args:
        vectors: the vectors a_jv, shape (m, K, D), or as :class:`OuterKeys` the factors x_jv and y_j of a_jv = vec(x_jv
            y_jᵀ), whose products floats would round; zero where there is no such alternative.
        counts: how often v followed context j, whole numbers, shape (m, K); at least one count of each context is
            positive.
        multiplicities: m_jv ≥ 1, whole numbers, 0 where there is no such alternative, shape (m, K); 1 if left out.
        embeddings: the h_j, shape (m, d), if the vectors are vec(e_v h_jᵀ), as in :meth:`of_tokens`.

    Raises:
        InvalidInput: an entry is NaN or infinite, shapes do not fit together, a context has no positive count, or an
            alternative of multiplicity 0 has a positive count.

    >>> MasterProblem.of_tokens([[1.0]], [[2, 1, 0]])
    MasterProblem(1 context, 3 alternatives, D = 3)
    """

    vectors: Float64[np.ndarray, "m K D"]
    counts: Int64[np.ndarray, "m K"]
    multiplicities: Int64[np.ndarray, "m K"]
    embeddings: Float64[np.ndarray, "m d"] | None
    factors: OuterKeys | None

    def __init__(
        self,
        vectors: ArrayLike | OuterKeys,
        counts: ArrayLike,
        multiplicities: ArrayLike | None = None,
        *,
        embeddings: Float64[np.ndarray, "m d"] | None = None,
    ) -> None:
        """Check the arrays, store them read-only, and store the factors only if floats would round their products."""
        factors = vectors if isinstance(vectors, OuterKeys) else None
        floats = checked_array("vectors", vectors if factors is None else factors.floats, ("m", "K", "D"))
        if factors is not None and factors.short and factors.exponent >= LEAST_EXPONENT:
            factors = None
        m, most, _ = floats.shape
        counted = whole_numbers("counts", counts, (m, most))
        repeated = (
            np.ones((m, most), dtype=np.int64)
            if multiplicities is None
            else whole_numbers("multiplicities", multiplicities, (m, most))
        )
        if (nothing := counted.sum(axis=1) == 0).any():
            raise InvalidInput(f"counts: nothing followed context {int(np.argmax(nothing))}; leave such contexts out.")
        if (counted[repeated == 0] > 0).any():
            j, v = (int(x) for x in np.argwhere((counted > 0) & (repeated == 0))[0])
            raise InvalidInput(f"counts: token {v} follows context {j}, where its multiplicity is 0; give it m ≥ 1.")
        for name, value in (("vectors", floats), ("counts", counted), ("multiplicities", repeated)):
            value.setflags(write=False)
            object.__setattr__(self, name, value)
        object.__setattr__(self, "embeddings", embeddings)
        object.__setattr__(self, "factors", factors)

    @classmethod
    def of_tokens(cls, embeddings: ArrayLike, counts: ArrayLike) -> MasterProblem:
        """Return the problem of next-token prediction with the logits W h_j, where θ = vec(W), W of shape (V, d).

        Args:
            embeddings: the embedding h_j of each context, shape (m, d).
            counts: how often each of V tokens followed context j, shape (m, V).

        Raises:
            InvalidInput: see the class.
        """
        h = checked_array("embeddings", embeddings, ("m", "d"))
        counted = whole_numbers("counts", counts, (len(h), "V"))
        tokens = counted.shape[1]
        vectors = np.einsum("vw,jd->jvwd", np.eye(tokens), h).reshape(len(h), tokens, -1)
        return cls(vectors, counted, embeddings=h)

    @classmethod
    def of_labels(cls, features: ArrayLike, labels: ArrayLike, classes: int) -> MasterProblem:
        """Return the problem of classifying the features h_i with labels y_i by logits W h_i, W of shape (classes, d).

        Raises:
            InvalidInput: see the class; or a label is no class.
        """
        h = checked_array("features", features, ("n", "d"))
        y = whole_numbers("labels", labels, (len(h),))
        if (y >= classes).any():
            raise InvalidInput(f"labels: {int(y.max())} is none of {classes} classes; give 0 to {classes - 1}.")
        return cls.of_tokens(h, np.eye(classes, dtype=np.int64)[y])

    def with_counts(self, counts: ArrayLike, multiplicities: ArrayLike | None = None) -> MasterProblem:
        """Return the problem of the same contexts with other counts, and with other multiplicities if they are given.

        Raises:
            InvalidInput: see the class.
        """
        times = self.multiplicities if multiplicities is None else multiplicities
        vectors = self.vectors if self.factors is None else self.factors
        return MasterProblem(vectors, counts, times, embeddings=self.embeddings)

    def __repr__(self) -> str:
        """Return the numbers of contexts and alternatives, and the dimension."""
        m, alternatives = len(self.counts), int(self.alternatives.sum())
        return f"MasterProblem({m} context{'' if m == 1 else 's'}, {alternatives} alternatives, D = {self.dimension})"

    @property
    def contexts(self) -> int:
        """Return the number of contexts, m."""
        return int(self.vectors.shape[0])

    @property
    def dimension(self) -> int:
        """Return D, the dimension of the parameters θ."""
        return int(self.vectors.shape[2])

    @cached_property
    def alternatives(self) -> Bool[np.ndarray, "m K"]:
        """Return the sets V_j of alternatives as a mask, shape (m, K)."""
        return np.asarray(self.multiplicities > 0)

    @cached_property
    def supports(self) -> Bool[np.ndarray, "m K"]:
        """Return the supports S_j, the alternatives that followed context j at least once, as a mask, shape (m, K)."""
        return np.asarray(self.counts > 0)

    @cached_property
    def first(self) -> Int64[np.ndarray, "m"]:
        """Return z_j, the first alternative in S_j, with which the differences a_jz − a_jv are formed, shape (m,)."""
        return np.argmax(self.supports, axis=1).astype(np.int64)

    @cached_property
    def weights(self) -> list[fmpq]:
        """Return π_j, the share of context j in all counts, shape (m,)."""
        total = int(self.counts.sum())
        return [fmpq(int(count), total) for count in self.counts.sum(axis=1).tolist()]

    @cached_property
    def targets(self) -> list[Vector]:
        """Return p_jv, the share of v in the counts of context j, as rationals, (m, K)."""
        return [[fmpq(x, sum(row)) for x in row] for row in self.counts.tolist()]

    @property
    def one_hot(self) -> bool:
        """Return whether each context is followed by a single alternative only."""
        return bool((self.supports.sum(axis=1) == 1).all())

    @cached_property
    def pairs(self) -> list[tuple[int, int]]:
        """Return the pairs (j, v) of a context j and an alternative v ≠ z_j, context by context."""
        return [(j, v) for j, v in np.argwhere(self.alternatives).tolist() if v != self.first[j]]

    @cached_property
    def differences(self) -> dict[tuple[int, int], Vector]:
        """Return a_jz − a_jv with z = z_j, as D rationals, for each pair (j, v) of :attr:`pairs`."""
        return {(j, v): self._difference(j, v) for j, v in self.pairs}

    def _difference(self, j: int, v: int) -> Vector:
        """Return a_jz − a_jv exactly; from factors as vec((x_jz − x_jv) y_jᵀ), so that no product is rounded."""
        at = self.vectors if self.factors is None else self.factors.tokens
        ends = zip(at[j, self.first[j]].tolist(), at[j, v].tolist(), strict=True)
        row = [rational(x) - rational(y) for x, y in ends]
        if self.factors is None:
            return row
        query = [rational(x) for x in self.factors.queries[j].tolist()]
        return [x * y for x in row for y in query]

    def pair_keys(self, pairs: list[tuple[int, int]], signs: list[int]) -> Float64[np.ndarray, "N 2 D"] | OuterKeys:
        """Return a_jz and a_jv for each of N pairs (j, v), exactly; in reverse order where the pair's sign is −1."""
        at = self.vectors if self.factors is None else self.factors.tokens
        signed_pairs = zip(pairs, signs, strict=True)
        ends = np.array([(at[j, self.first[j]], at[j, v])[::sign] for (j, v), sign in signed_pairs])
        return ends if self.factors is None else OuterKeys(ends, self.factors.queries[[j for j, _ in pairs]])


def unconnected_contexts(embeddings: Float64[np.ndarray, "m d"]) -> list[list[int]]:
    """Return the contexts in groups that have no coordinate in common, so that each group is a separate problem.

    Two contexts belong to the same group if a chain of contexts leads from one to the other in which consecutive
    embeddings are both non-zero in some coordinate.
    """
    groups: list[tuple[set[int], list[int]]] = []
    for j, row in enumerate(np.asarray(embeddings)):
        coordinates, members = set(np.flatnonzero(row).tolist()), [j]
        disjoint = []
        for group in groups:
            if group[0] & coordinates:
                coordinates |= group[0]
                members += group[1]
            else:
                disjoint.append(group)
        groups = [*disjoint, (coordinates, sorted(members))]
    return sorted(members for _, members in groups)


def whole_numbers(name: str, value: Any, shape: tuple[int | str, ...]) -> Int64[np.ndarray, "..."]:
    """Return ``value`` as int64 of the given shape (letters stand for any length), or refuse it.

    Raises:
        InvalidInput: a number is not whole or is negative, the shape is wrong, or the sum is too large to be exact.
    """
    refuse_truth_values(name, value)
    expected = "(" + ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "") + ")"
    raw = as_array(name, value, expected)
    fits = raw.ndim == len(shape) and all(isinstance(s, str) or n == s for n, s in zip(raw.shape, shape, strict=True))
    if raw.dtype.kind not in "fiu" or not fits or 0 in raw.shape:
        raise InvalidInput(f"{name}: dtype {raw.dtype}, shape {raw.shape}; give whole numbers of shape {expected}.")
    if not np.isfinite(raw).all() or (raw != np.floor(raw)).any() or (raw < 0).any():
        raise InvalidInput(f"{name}: an entry is no whole number ≥ 0; give counts.")
    if float(np.sum(raw, dtype=np.float64)) >= MOST_COUNTED:
        raise InvalidInput(f"{name}: the entries add up to {MOST_COUNTED:.0e} or more; divide them by a common factor.")
    return raw.astype(np.int64)
