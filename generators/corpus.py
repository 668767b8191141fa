"""A corpus as next-token data: contexts are windows of tokens, with counts of the tokens that follow them.

Tokens are the characters of a text, or ids. The context of a token is the ``window`` tokens before it. The embedding h
of a context joins the one-hot vectors of the context's tokens: ``window`` times V entries of 0 or 1, if there are V
distinct tokens. Embeddings of windows of one token are linearly independent, hence the data are separable and
compatible (the two conditions of the paper); with longer windows they may not be.

Reference: arXiv 2402.18551, Section 2 and Appendix C.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64

from reference_attention.errors import InvalidInput
from reference_attention.files import read_text

WINDOW = 2
LARGEST_FILE = 1 << 20
"""The largest size of a text in bytes."""
LONGEST = 120.0
"""The largest estimated time of ``theorems explain``, in seconds; a corpus that takes longer is refused."""
SECONDS_EACH = 1e-6
"""The factor of :func:`estimate`, in seconds per operation, measured on texts with alphabets of 5 to 27 letters."""


@dataclass(frozen=True, eq=False)
class Windows:
    """The m contexts of a corpus, and how often each of the V tokens follows each context.

    Attributes:
        embeddings: the embedding of each context, (m, window · V).
        counts: how often each token follows each context, (m, V).
        vocabulary: the names of the tokens.
        windows: the names of the contexts.
    """

    embeddings: Float64[np.ndarray, "m d"]
    counts: Int64[np.ndarray, "m V"]
    vocabulary: tuple[str, ...]
    windows: tuple[str, ...]


def windows_of(corpus: Sequence[int] | str, window: int = WINDOW, name: str = "corpus") -> Windows:
    """Return the windows of a corpus, and how often each token follows each window.

    Args:
        corpus: a text, whose characters are the tokens, or a sequence of token ids ≥ 0. Characters are sorted by code
            point, ids by number.
        window: the number of tokens of a context.
        name: the name of the corpus in an error message.

    Raises:
        InvalidInput: the corpus is too short for a window and a token after it, or too large to be solved exactly.

    >>> found = windows_of("abab aba", 1)
    >>> found.vocabulary, found.counts.tolist()
    ((' ', 'a', 'b'), [[0, 1, 0], [0, 0, 3], [1, 2, 0]])
    """
    if not isinstance(window, int) or isinstance(window, bool) or window < 1:
        raise InvalidInput(f"{name}: the window {window!r} is no whole number ≥ 1; give the length of a context.")
    if not isinstance(corpus, str) and not all(isinstance(x, int | np.integer) and x >= 0 for x in corpus):
        raise InvalidInput(f"{name}: an entry of the corpus is no id ≥ 0; give a text, or a list of whole numbers ≥ 0.")
    if len(corpus) <= window:
        raise InvalidInput(
            f"{name}: {len(corpus)} tokens have no window of {window} followed by another token; give more tokens."
        )
    vocabulary: list[Any] = sorted(set(corpus))
    ids = {token: k for k, token in enumerate(vocabulary)}
    tokens = [ids[token] for token in corpus]
    follows = Counter((tuple(tokens[t - window : t]), tokens[t]) for t in range(window, len(tokens)))
    contexts = sorted({context for context, _ in follows})
    size = len(vocabulary)
    if size < 2:
        raise InvalidInput(f"{name}: the corpus repeats one token; give a corpus with several distinct tokens.")
    seconds = estimate(len(contexts), size, window)
    if seconds > LONGEST:
        option = f"{name}:window=1" if name.endswith(".txt") else "window: 1"
        shorter = f"a window of one token ({option}), " if window > 1 else ""
        raise InvalidInput(
            f"{name}: {len(contexts)} contexts of {window} token{'s' * (window > 1)} and {size} tokens make a W of"
            f" {size * size * window} entries, whose exact solution takes about {seconds / 60:.2g} minutes; the limit"
            f" is {LONGEST / 60:g}. Take {shorter}a shorter text or a smaller alphabet."
        )
    counts = np.array([[follows[context, v] for v in range(size)] for context in contexts])
    h = np.array([[float(x == v) for x in context for v in range(size)] for context in contexts])
    names = tuple(map(str, vocabulary))
    windows = tuple(("" if isinstance(corpus, str) else " ").join(names[x] for x in context) for context in contexts)
    return Windows(h, counts, names, windows)


def estimate(contexts: int, tokens: int, window: int) -> float:
    """Estimate the seconds that ``theorems explain`` takes; with windows of one token each context is solved by itself.

    >>> round(estimate(27, 27, 1), 2), round(estimate(300, 27, 2))
    (0.53, 17219)
    """
    alone = contexts if window == 1 else 1
    entries = tokens * (1 if window == 1 else tokens * window)
    return SECONDS_EACH * alone * entries**2 * (contexts / alone) * tokens


def split_window(source: str) -> tuple[str, int]:
    """Split ``TEXT.txt:window=N`` into the file and the window N, which is :data:`WINDOW` if it is not given.

    Raises:
        InvalidInput: N is no whole number ≥ 1.
    """
    path, text, number = source.partition(".txt:window=")
    if not text:
        return source, WINDOW
    if not (number.isascii() and number.isdigit() and int(number)):
        raise InvalidInput(f"--data: {source!r} has the window {number!r}; give a whole number ≥ 1, as in :window=1.")
    return f"{path}.txt", int(number)


def read_corpus(path: Path) -> str:
    """Read a text file, and replace each line end and each run of spaces by a single space.

    Raises:
        InvalidInput: the file does not exist, is too long, or is no UTF-8 text.
    """
    return " ".join(read_text(path, "a text file", LARGEST_FILE, "give a shorter text").split())
