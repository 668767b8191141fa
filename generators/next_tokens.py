"""Data of next-token prediction: contexts with counts of next tokens, or sequences with labels for attention.

References: arXiv 2402.18551, Section 2; arXiv 2403.08081, Section 2.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64

from generators.case import scale_exactly
from generators.corpus import SECONDS_EACH, WINDOW, windows_of
from generators.next_token_limits import NextTokenLimits
from generators.subject import RECORD, Subject
from reference_attention.errors import InvalidInput
from reference_attention.next_token.attention_samples import ABSENT, attention_problem
from reference_attention.next_token.master_problem import MasterProblem, unconnected_contexts, whole_numbers
from reference_attention.problem import checked_array

MOST_ENTRIES = 200
"""The largest number of entries of W, tokens times dimension, for which statements are verified on a corpus."""
MOST_PAIRS = 400
"""The largest number of pairs of context and token for which statements are verified on a corpus."""


@dataclass(frozen=True, eq=False)
class NextTokens(Subject, kind="next-tokens", noun="contexts with next tokens"):
    """Embeddings of contexts with counts of next tokens, or embeddings of tokens with samples and labels.

    Attributes:
        embeddings: the vectors h_j of contexts, (m, d); if samples are given, the vectors e_v of tokens, (K, d).
        counts: how often each of V tokens followed each context, (m, V).
        samples: token ids of each sequence, (n, T), padded at the end with −1; attention is trained with the last token
            as the query.
        labels: the token id to predict for each sequence, (n,).
        start: the start vec(W) of training, row by row, (D,), where D is the number of trained entries.
        step: the step size η of gradient descent; if η is 0, statements use a step size of at most 1/β, β the
            smoothness.
        vocabulary: names of the tokens; without these, ids are shown.
        windows: names of the contexts; without these, embeddings are shown.
        seed, name: see :class:`generators.subject.Subject`.
    """

    embeddings: Float64[np.ndarray, "m d"]
    counts: Int64[np.ndarray, "m V"] | None = None
    samples: Int64[np.ndarray, "n T"] | None = None
    labels: Int64[np.ndarray, "n"] | None = None
    start: Float64[np.ndarray, "D"] | None = None
    step: float = 0.0
    vocabulary: Sequence[str] = ()
    windows: Sequence[str] = ()
    seed: int = 0
    name: str = "generated"

    def __post_init__(self) -> None:
        """Refuse values that do not fit together, and convert names to tuples of strings."""
        checked_array("embeddings", self.embeddings, ("m", "d"))
        if (self.counts is None) == (self.samples is None):
            raise InvalidInput("counts: give either counts of next tokens, or samples with labels.")
        if self.counts is not None:
            whole_numbers("counts", self.counts, (len(self.embeddings), "V"))
        elif self.labels is None:
            raise InvalidInput("labels: missing; give the token to predict for each sequence.")
        elif self.samples is not None and self.labels.shape != self.samples.shape[:1]:
            raise InvalidInput(
                f"labels: shape {self.labels.shape} for samples {self.samples.shape}; give one token for each sequence."
            )
        if not (np.isfinite(self.step) and self.step >= 0):
            raise InvalidInput(f"step: {self.step} is no step size; give a positive number.")
        for name, count in (("vocabulary", self.tokens), ("windows", len(self.problem_rows))):
            names = tuple(map(str, getattr(self, name)))
            object.__setattr__(self, name, names)
            if names and len(names) != count:
                raise InvalidInput(f"{name}: has {len(names)} names; give {count}.")
        if self.counts is not None or self.labels_within:
            size = self.dimension
            if self.start is not None and self.start.shape != (size,):
                raise InvalidInput(f"start: shape {self.start.shape}; give the {size} entries of W, row by row.")

    def named_values(self) -> dict[str, Any]:
        """Return the values to write to a file; names and step are left out unless they are given."""
        left_out = {name for name in ("step", "vocabulary", "windows") if not getattr(self, name)}
        return {name: value for name, value in super().named_values().items() if name not in left_out}

    @classmethod
    def of_values(cls, contents: Mapping[str, Any], seed: int = 0, name: str = "data") -> NextTokens:
        """Return the data with the named fields, or the data that the fields ``corpus`` and ``window`` define.

        :mod:`generators.corpus` describes corpora.

        Raises:
            InvalidInput: unknown names, or values that do not fit.
        """
        if "corpus" not in contents:
            return super().of_values(contents, seed, name)
        further = sorted({*contents} - {"corpus", "window", "seed", "name", *RECORD})
        if further:
            raise InvalidInput(f"{name}: {further[0]!r} cannot be combined with a corpus; leave it out.")
        text = contents["corpus"].tolist() if isinstance(contents["corpus"], np.ndarray) else contents["corpus"]
        if not isinstance(text, str | list):
            raise InvalidInput(f"{name}: the corpus is neither a text nor a list of ids; give one of them.")
        return cls.of_corpus(text, contents.get("window", WINDOW), seed=contents.get("seed", seed), name=name)

    @classmethod
    def of_corpus(
        cls, corpus: Sequence[int] | str, window: int = WINDOW, *, seed: int = 0, name: str = "corpus"
    ) -> NextTokens:
        """Count the tokens that follow each window of a text or of ids; see :func:`generators.corpus.windows_of`.

        Raises:
            InvalidInput: the corpus is too short for a window and a token after it, or too large to be solved exactly.
        """
        windows = windows_of(corpus, window, name)
        case = cls(windows.embeddings, windows.counts, seed=seed, name=name)
        return case.replace(vocabulary=windows.vocabulary, windows=windows.windows)

    def normalise(self) -> NextTokens:
        """Return the data with embeddings divided by a power of two s that brings max |embedding| into [1, 2).

        Nothing is rounded. Logits are thereby divided by s or, for sequences, whose logits are products of two
        embeddings, by s²; the start is multiplied by the same number, and the step size by the square of that number.

        Raises:
            InvalidInput: a magnitude would leave the range in which scaling is exact.
        """
        largest = float(np.abs(self.embeddings).max())
        power = math.frexp(largest)[1] - 1 if largest > 0 else 0
        if power == 0:
            return self
        unit = power if self.samples is None else 2 * power
        start = None if self.start is None else scale_exactly("start", self.start, np.ldexp(1.0, unit))
        step = float(scale_exactly("step", np.array(self.step), np.ldexp(1.0, 2 * unit)))
        embeddings = scale_exactly("embeddings", self.embeddings, np.ldexp(1.0, -power))
        return self.replace(embeddings=embeddings, start=start, step=step)

    @property
    def tokens(self) -> int:
        """The number of tokens of the vocabulary."""
        return len(self.embeddings) if self.counts is None else int(self.counts.shape[1])

    @property
    def problem_rows(self) -> np.ndarray:
        """The array with a row for each context (embeddings) or for each sequence (samples)."""
        return self.embeddings if self.samples is None else self.samples

    @property
    def labels_within(self) -> bool:
        """Return whether each label is a token of its sequence; if not, the loss is infinite."""
        if self.samples is None or self.labels is None:
            return True
        return all(label in row for row, label in zip(self.samples.tolist(), self.labels.tolist(), strict=True))

    @cached_property
    def problem(self) -> MasterProblem:
        """The loss of the data as a problem: contexts with alternatives (possible next tokens) and their counts.

        Raises:
            InvalidInput: see :func:`reference_attention.next_token.attention_samples.attention_problem`.
        """
        if self.samples is None or self.labels is None:
            assert self.counts is not None
            return MasterProblem.of_tokens(self.embeddings, self.counts)
        return attention_problem(self.embeddings, self.samples, self.labels)

    @cached_property
    def parts(self) -> tuple[tuple[tuple[int, ...], MasterProblem], ...]:
        """The subproblems of contexts that share no coordinate of W, each with the indices of its contexts."""
        if self.counts is None:
            return ((tuple(range(self.problem.contexts)), self.problem),)
        parts = []
        for members in unconnected_contexts(self.embeddings):
            h = self.embeddings[members]
            coordinates = np.flatnonzero(h.any(axis=0)) if h.any() else np.array([0])
            parts.append((tuple(members), MasterProblem.of_tokens(h[:, coordinates], self.counts[members])))
        return tuple(parts)

    @cached_property
    def dimension(self) -> int:
        """The number D of trained entries, computed for counts without building the vectors of alternatives.

        Raises:
            InvalidInput: counts or samples that do not define a problem.
        """
        if self.counts is None:
            return self.problem.dimension
        return MasterProblem.of_tokens(np.ones((len(self.embeddings), 1)), self.counts).dimension * len(
            self.embeddings[0]
        )

    @property
    def explained_in(self) -> float:
        """Return the estimated time of :meth:`explain` in seconds."""
        return sum(SECONDS_EACH * part.dimension**2 * len(part.pairs) for _, part in self.parts)

    @property
    def too_large(self) -> str:
        """Return why the data are too large for statements to be verified on them; "" if they are not too large."""
        pairs = 0 if self.counts is None or not self.windows else self.counts.size
        if pairs <= MOST_PAIRS and (not pairs or self.dimension <= MOST_ENTRIES):
            return ""
        return (
            f"{self.name} has {pairs} pairs of context and token, and a W of {self.dimension} entries; statements are"
            f" verified on at most {MOST_PAIRS} and {MOST_ENTRIES}. Take a smaller alphabet, or run theorems explain."
        )

    @property
    def sizes(self) -> Mapping[str, int]:
        """The sizes n, T, K and d of sequences, or m, V and d of contexts, as in the shapes of the attributes."""
        (k, d) = self.embeddings.shape
        if self.samples is not None:
            return {"n": len(self.samples), "T": self.samples.shape[1], "K": k, "d": d}
        assert self.counts is not None
        return {"m": k, "V": self.counts.shape[1], "d": d}

    def rows(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """Return the head and rows of a table of sequences and labels, or of contexts and counts of next tokens."""
        if self.samples is not None and self.labels is not None:
            predicted = [self.token(y) for y in self.labels.tolist()]
            return ("sequence", "predicts"), list(zip(map(self.context, range(len(predicted))), predicted, strict=True))
        assert self.counts is not None
        counts = self.counts.tolist()
        follows = [", ".join(f"{self.token(v)}: {c}" for v, c in enumerate(row) if c) for row in counts]
        names = map(self.context, range(len(counts)))
        return ("context", "followed by token: times"), list(zip(names, follows, strict=True))

    def token(self, v: int) -> str:
        """Return the name of token v, in quotes if it is blank."""
        name = self.vocabulary[v] if self.vocabulary else str(v)
        return name if name.strip() else repr(name)

    def context(self, j: int) -> str:
        """Return the name of context j or sequence j."""
        if self.windows:
            return self.windows[j] if self.windows[j].strip() == self.windows[j] else repr(self.windows[j])
        if self.samples is not None:
            return " ".join(self.token(x) for x in self.samples[j].tolist() if x != ABSENT)
        return " ".join(f"{x:g}" for x in self.embeddings[j].tolist())

    def alternative(self, j: int, v: int) -> str:
        """Return the name of alternative v of context j; for a sequence, the v-th of its distinct tokens."""
        if self.samples is None:
            return self.token(v)
        return self.token(sorted({x for x in self.samples[j].tolist() if x != ABSENT})[v])

    def lines(self) -> list[str]:
        """Return the lines below the table: the embeddings of tokens, the start, the step and the seed."""
        texts = [] if self.samples is None else [f"embeddings {self.embeddings.tolist()}"]
        texts += [] if self.start is None else [f"start {self.start.tolist()}"]
        return [*texts, *([f"step {self.step:g}"] if self.step else []), f"seed {self.seed}"]

    def explain(self) -> list[str]:
        """Return the sentences that explain which next tokens keep probability in the limit of training."""
        if not self.labels_within:
            return ["A label does not occur in its sequence: the loss is infinite, whatever W is."]
        return NextTokenLimits.of(self).sentences

    def simpler(self) -> Iterator[NextTokens]:
        """Yield simpler data, each by one change.

        A change removes a context or sequence, a token, a coordinate or the start, sets all counts to 1, or rounds
        embeddings.
        """
        if self.samples is not None and self.labels is not None:
            for i in range(len(self.samples) if len(self.samples) > 1 else 0):
                yield self.replace(samples=np.delete(self.samples, i, axis=0), labels=np.delete(self.labels, i))
        elif self.counts is not None:
            m, size = self.counts.shape
            d = self.embeddings.shape[1]
            bare = self.replace(start=None, vocabulary=(), windows=())
            for j in range(m if m > 1 else 0):
                less = np.delete(self.counts, j, axis=0)
                yield bare.replace(embeddings=np.delete(self.embeddings, j, axis=0), counts=less)
            for v in range(size if size > 2 else 0):
                if not self.counts[:, v].any():
                    yield bare.replace(counts=np.delete(self.counts, v, axis=1))
            for k in range(d if d > 1 else 0):
                yield bare.replace(embeddings=np.delete(self.embeddings, k, axis=1))
            once = np.minimum(self.counts, 1)
            if (once != self.counts).any():
                yield self.replace(counts=once)
            whole = np.round(self.embeddings)
            if (whole != self.embeddings).any():
                yield self.replace(embeddings=whole)
        if self.start is not None:
            yield self.replace(start=None)
