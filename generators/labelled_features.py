"""Classification data: features, their classes, and how often each feature occurs.

References: Fan, Schmidt, Thrampoulidis, *Implicit Bias of Spectral Descent and Muon on Multiclass Separable Data*,
arXiv 2502.04664, Section 2.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from jaxtyping import Float64, Int64

from generators.finding import Assumption, Finding, number
from generators.margin_assumptions import difference_rows, is_farkas_proof
from generators.numbers import STYLES, entries, integers, one_in
from generators.subject import Subject
from reference_attention.errors import InvalidInput
from reference_attention.exact import products, to_float
from reference_attention.next_token.master_problem import MasterProblem
from reference_attention.outer_keys import OuterKeys
from reference_attention.svm.max_margin import Infeasible, max_margin

MOST = (7, 5, 4)
"""The largest number of features n, number of classes k and dimension d."""


@dataclass(frozen=True, eq=False)
class LabelledFeatures(Subject, kind="classification", noun="features with classes"):
    """Features h_i with classes y_i, for a linear classifier with logits W h_i.

    Attributes:
        features: h_i, shape (n, d).
        labels: the classes y_i, numbered from 0, shape (n,).
        counts: how often each feature occurs, which is its weight in the loss; shape (n,).
        classes: the number of classes k, at least two.
        start: the start vec W(0), shape (k d,); ``None`` lets a statement choose starts.
        seed, name: see :class:`generators.subject.Subject`.

    Raises:
        InvalidInput: arrays whose shapes do not fit together, or a label that is no class.
    """

    features: Float64[np.ndarray, "n d"]
    labels: Int64[np.ndarray, "n"]
    counts: Int64[np.ndarray, "n"]
    classes: int
    start: Float64[np.ndarray, "k"] | None = None
    seed: int = 0
    name: str = "generated"

    def __post_init__(self) -> None:
        """Refuse arrays that are not finite or whose shapes do not fit together."""
        shape = np.shape(self.features)
        if len(shape) != 2 or 0 in shape or not np.isfinite(self.features).all():
            raise InvalidInput(f"features: shape {shape}; give finite numbers of shape (n, d).")
        if self.classes < 2:
            raise InvalidInput(f"classes: {self.classes}; give at least two.")
        if self.labels.shape != shape[:1] or (self.labels < 0).any() or (self.labels >= self.classes).any():
            raise InvalidInput(f"labels: give {shape[0]} whole numbers from 0 to {self.classes - 1}.")
        if self.counts.shape != shape[:1] or (self.counts < 1).any():
            raise InvalidInput(f"counts: give {shape[0]} whole numbers, each at least 1.")
        if self.start is not None and self.start.shape != (self.classes * shape[1],):
            raise InvalidInput(f"start: shape {self.start.shape}; give vec W, ({self.classes * shape[1]},).")

    @property
    def shape(self) -> tuple[int, int]:
        """The shape (k, d) of W."""
        return self.classes, self.features.shape[1]

    @property
    def sizes(self) -> Mapping[str, int]:
        """The sizes n, k and d."""
        return {"n": len(self.features), "k": self.classes, "d": self.features.shape[1]}

    @cached_property
    def problem(self) -> MasterProblem:
        """The logistic loss of the data, as a :class:`MasterProblem`."""
        followed = np.eye(self.classes, dtype=np.int64)[self.labels] * self.counts[:, None]
        return MasterProblem.of_tokens(self.features, followed)

    @cached_property
    def keys(self) -> OuterKeys:
        """The keys vec(e_v h_iᵀ) of attention whose tokens are the one-hot classes e_v, stored as factors."""
        tokens = np.broadcast_to(np.eye(self.classes), (len(self.features), self.classes, self.classes))
        return OuterKeys(np.array(tokens), self.features)

    def normalise(self) -> LabelledFeatures:
        """Return the data with features h/s and start s·W(0), where the power of two s brings max |h| into [1, 2)."""
        largest = float(np.abs(self.features).max())
        scale = 2.0 ** math.floor(math.log2(largest)) if largest > 0 else 1.0
        start = None if self.start is None else self.start * scale
        return self.replace(features=self.features / scale, start=start)

    def simpler(self) -> Iterator[LabelledFeatures]:
        """Yield simpler data: each lacks one feature or the start, or has all counts 1 or rounded features."""
        for i in range(len(self.features) if len(self.features) > 1 else 0):
            yield self.replace(
                features=np.delete(self.features, i, axis=0),
                labels=np.delete(self.labels, i),
                counts=np.delete(self.counts, i),
            )
        if self.start is not None:
            yield self.replace(start=None)
        if (self.counts > 1).any():
            yield self.replace(counts=np.ones_like(self.counts))
        if (rounded := np.round(self.features)).any() and (rounded != self.features).any():
            yield self.replace(features=rounded)


@st.composite
def label_cases(draw: DrawFn) -> LabelledFeatures:
    """Draw data that are separable by construction.

    A feature of class y is h = c w_y + δ for distinct vectors w_v of equal norm, one for each class v, and a random δ.
    If c is large enough, c(‖w_y‖² − w_y·w_v) + (w_y − w_v)·δ > 0 for all v ≠ y; so W with the rows w_v has positive
    margins.
    """
    n, k = draw(st.integers(1, MOST[0])), draw(st.integers(2, MOST[1]))
    d = draw(st.integers(1 if k == 2 else 2, MOST[2]))
    rows = np.array(draw(st.permutations(_of_one_length(d)))[:k])
    labels = draw(integers((n,), 0, k - 1, most=MOST[:1]))
    noise = draw(entries((n, d), draw(STYLES), most=(MOST[0], MOST[2])))
    row_of_label = rows[labels]
    gains = (row_of_label * row_of_label).sum(axis=1, keepdims=True) - row_of_label @ rows.T
    lost = -((row_of_label[:, None] - rows) * noise[:, None]).sum(axis=2)
    least_factor = np.max(np.where(gains > 0, lost / np.where(gains > 0, gains, 1.0), 0.0), axis=1)
    # The factor c is the least sufficient value, rounded up to a multiple of ½, plus this number.
    more = draw(st.sampled_from((0.5, 0.5, 2.0, 8.0)))
    factor = np.maximum(np.ceil(2 * least_factor) / 2, 0.0) + more
    features = factor[:, None] * row_of_label + noise
    if n > 1 and draw(one_in(4)):
        features[-1], labels[-1] = features[0], labels[0]
    counts = draw(integers((n,), 1, 3, most=MOST[:1])) if draw(one_in(3)) else np.ones(n, dtype=np.int64)
    unit = 2.0 ** draw(st.integers(-20, 20)) if draw(one_in(6)) else 1.0
    start = draw(entries((k * d,), draw(STYLES))) / unit if draw(one_in(2)) else None
    return LabelledFeatures(features * unit, labels, counts, k, start=start, seed=draw(st.integers(0, 2**32 - 1)))


def _of_one_length(d: int) -> list[list[float]]:
    """Return the vectors (±2, ±1, 0, …) and (±1, ±2, 0, …) in d dimensions, or (±1) for d = 1."""
    if d == 1:
        return [[1.0], [-1.0]]
    pairs = [[a * s, b * r] for a, b in ((2.0, 1.0), (1.0, 2.0)) for s in (1, -1) for r in (1, -1)]
    return [[*pair, *[0.0] * (d - 2)] for pair in pairs]


def separable_labels(case: LabelledFeatures) -> Finding:
    """Check that for some W each feature h_i has the largest logit at its class; the solution is checked exactly."""
    rows, solution = difference_rows(case.keys, case.labels), max_margin(case.keys, case.labels)
    if isinstance(solution, Infeasible):
        proven = is_farkas_proof(rows, solution.exact)
        return Finding(False if proven else None, "multipliers prove that no W tells the classes apart")
    least = min(products(list(rows.values()), list(solution.exact.p)))
    return Finding(True if least > 0 else None, f"the least margin is {number(to_float(least))}")


SEPARABLE_LABELS = Assumption(
    "separable-labels", "some W tells all classes apart", "arXiv 2502.04664, Assumption 1", separable_labels
)
