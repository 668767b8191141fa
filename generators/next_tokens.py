"""Contexts and what followed them, or sequences that attention predicts a token of: the data of next-token prediction.

References: arXiv 2402.18551, Section 2; arXiv 2403.08081, Section 2.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float64, Int64

from generators.subject import Subject
from reference_attention.errors import InvalidInput
from reference_attention.next_token.attention_samples import ABSENT, attention_problem
from reference_attention.next_token.master_problem import MasterProblem, whole_numbers
from reference_attention.problem import checked_array


@dataclass(frozen=True, eq=False)
class NextTokens(Subject, kind="next-tokens", noun="contexts with next tokens"):
    """Embeddings of contexts with counts of what followed, or of tokens with samples and labels.

    Attributes:
        embeddings: h_j of the contexts, (m, d); with samples e_v of the tokens, (K, d).
        counts: how often each of V tokens followed context j, (m, V).
        samples: token ids of each sequence, the last one's attention is trained, −1 at the end of shorter ones, (n, T).
        labels: the token id that each sequence predicts, (n,).
        start: θ_0, (D,): vec(W_0), rows after one another.
        step: η of gradient descent; at most 1/β if left out.
        seed, name: see :class:`generators.subject.Subject`.
    """

    embeddings: Float64[np.ndarray, "m d"]
    counts: Int64[np.ndarray, "m V"] | None = None
    samples: Int64[np.ndarray, "n T"] | None = None
    labels: Int64[np.ndarray, "n"] | None = None
    start: Float64[np.ndarray, "D"] | None = None
    step: float = 0.0
    seed: int = 0
    name: str = "generated"

    def __post_init__(self) -> None:
        checked_array("embeddings", self.embeddings, ("m", "d"))
        if (self.counts is None) == (self.samples is None):
            raise InvalidInput("counts: give either counts of next tokens, or samples with labels.")
        if self.counts is not None:
            whole_numbers("counts", self.counts, (len(self.embeddings), "V"))
        elif self.labels is None:
            raise InvalidInput("labels: missing; give the token that each sequence predicts.")
        if not (np.isfinite(self.step) and self.step >= 0):
            raise InvalidInput(f"step: {self.step} is no step size; give a positive number.")
        if self.counts is not None or self.labels_within:
            size = self.problem.dimension
            if self.start is not None and self.start.shape != (size,):
                raise InvalidInput(f"start: shape {self.start.shape}; give the {size} entries of W, row by row.")

    @property
    def labels_within(self) -> bool:
        """Whether each label is a token of its sequence: without that the loss is infinite."""
        if self.samples is None or self.labels is None:
            return True
        return all(label in row for row, label in zip(self.samples.tolist(), self.labels.tolist(), strict=True))

    @cached_property
    def problem(self) -> MasterProblem:
        """Contexts, alternatives and counts.

        Raises:
            InvalidInput: see :func:`reference_attention.next_token.attention_samples.attention_problem`.
        """
        if self.samples is None or self.labels is None:
            assert self.counts is not None
            return MasterProblem.of_tokens(self.embeddings, self.counts)
        return attention_problem(self.embeddings, self.samples, self.labels)

    @property
    def sizes(self) -> Mapping[str, int]:
        (k, d) = self.embeddings.shape
        if self.samples is not None:
            return {"n": len(self.samples), "T": self.samples.shape[1], "K": k, "d": d}
        assert self.counts is not None
        return {"m": k, "V": self.counts.shape[1], "d": d}

    def rows(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        if self.samples is not None and self.labels is not None:
            shown = [[str(x) for x in row if x != ABSENT] for row in self.samples.tolist()]
            return ("sequence", "predicts"), [(" ".join(s), str(y)) for s, y in zip(shown, self.labels, strict=True)]
        assert self.counts is not None
        vectors = [" ".join(f"{x:g}" for x in row) for row in self.embeddings.tolist()]
        follows = [", ".join(f"{v}: {c}" for v, c in enumerate(row) if c) for row in self.counts.tolist()]
        return ("context", "followed by token: times"), list(zip(vectors, follows, strict=True))

    def lines(self) -> list[str]:
        said = [] if self.samples is None else [f"embeddings {self.embeddings.tolist()}"]
        said += [] if self.start is None else [f"start {self.start.tolist()}"]
        return [*said, *([f"step {self.step:g}"] if self.step else []), f"seed {self.seed}"]

    def simpler(self) -> Iterator[NextTokens]:
        """With a context or sequence less, without the start, every count 1."""
        if self.samples is not None and self.labels is not None:
            for i in range(len(self.samples) if len(self.samples) > 1 else 0):
                yield self.replace(samples=np.delete(self.samples, i, axis=0), labels=np.delete(self.labels, i))
        elif self.counts is not None:
            for j in range(len(self.counts) if len(self.counts) > 1 else 0):
                less = np.delete(self.counts, j, axis=0)
                yield self.replace(embeddings=np.delete(self.embeddings, j, axis=0), counts=less)
            once = np.minimum(self.counts, 1)
            if (once != self.counts).any():
                yield self.replace(counts=once)
        if self.start is not None:
            yield self.replace(start=None)
