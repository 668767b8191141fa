"""Strategies for calls of an attention kernel: sizes at and around those of blocks, logits near and far, options.

A call shrinks to one batch entry, one head, one query, one or two keys, small integers, contiguous.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy
from jaxtyping import Bool

from generators.attention_call import AttentionCall, Memory

SMALL = (1, 2, 3, 4, 5)
LONG = (7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257)
"""Lengths at and around those of the blocks that kernels work in."""
WIDTHS = (8, 16, 32, 33, 64, 65, 128, 256, 256)
"""Of heads: mostly powers of two, as in models; kernels have a branch of their own for the widest."""
ENTRIES = 1 << 22
"""B · H · L · T · E at most: what the check computes has to stay within a second."""


class Numbers(StrEnum):
    """What entries look like, in the order in which they shrink."""

    INTEGERS = "integers"
    """From −3 to 3: ties."""
    NORMAL = "normal"
    """Standard normal: what everybody tests."""
    SATURATED = "saturated"
    """Logits in the hundreds: weights of 0 and 1, exponentials that underflow."""
    FAR = "far"
    """Logits around −10⁵, close to each other: only their differences count, not the number zero."""
    GROWING = "growing"
    """The largest logit is the last: a running maximum grows all the way."""


@dataclass(frozen=True)
class Sizes:
    """B, H, G, L, T, E, M."""

    B: int
    H: int
    G: int
    L: int
    T: int
    E: int
    M: int

    @property
    def cost(self) -> int:
        """Products of one matrix product."""
        return self.B * self.H * self.L * self.T * self.E

    @cached_property
    def logits(self) -> tuple[int, int, int, int]:
        """The shape of the logits."""
        return self.B, self.H, self.L, self.T


@st.composite
def sizes(draw: DrawFn, *, grouped: bool = False, square: bool | None = False) -> Sizes:
    """Of a call; about half have a length or two, or a width, at and around those of blocks.

    Args:
        grouped: heads share keys and values, at least two to a group.
        square: L = T always, never (None), or as it comes.
    """
    kind = draw(st.sampled_from(("small", "small", "keys", "queries", "both", "wide", "wide keys")))
    T = draw(st.sampled_from(LONG if kind in ("keys", "both", "wide keys") else SMALL))
    L = draw(st.sampled_from(LONG if kind in ("queries", "both") else SMALL))
    E = draw(st.sampled_from(WIDTHS if kind in ("wide", "wide keys") else SMALL))
    if square is True:
        L = T
    elif square is None and L == T:
        L, T = draw(st.sampled_from(((L, T + 1), (L, T + 8), (L + 1, T), (L + 3, T))))
    G = draw(st.integers(1, 3))
    group = draw(st.sampled_from((2, 3, 4))) if grouped else 1
    B = draw(st.integers(1, 3))
    M = draw(st.sampled_from((E, E, E, 1, 3, E + 1)))
    found = Sizes(B, G * group, G, L, T, E, M)
    while found.cost > ENTRIES:  # the lengths are what it is about
        B, G = max(1, found.B - 1), max(1, found.G - 1)
        if (B, G) == (found.B, found.G):
            L, T = (found.L // 2, found.T) if found.L > found.T else (found.L, found.T // 2)
            found = Sizes(B, G * group, G, T if square is True else L, T, found.E, found.M)
        else:
            found = Sizes(B, G * group, G, found.L, found.T, found.E, found.M)
    return found


def tensors(of: Sizes, numbers: Numbers, seed: int) -> AttentionCall:
    """Query, key, value and upstream gradient of those sizes, from a seed."""
    rng = np.random.default_rng(seed)
    shapes = ((of.B, of.H, of.L, of.E), (of.B, of.G, of.T, of.E), (of.B, of.G, of.T, of.M), (of.B, of.H, of.L, of.M))
    if numbers is Numbers.INTEGERS:
        query, key, value, upstream = (rng.integers(-3, 4, shape).astype(np.float64) for shape in shapes)
    else:
        query, key, value, upstream = (rng.standard_normal(shape) for shape in shapes)
    if numbers is Numbers.SATURATED:
        query = query * 64.0
    elif numbers is Numbers.FAR:
        query[..., 0], key[..., 0] = 512.0, -256.0
    elif numbers is Numbers.GROWING:
        query[..., 0], key[..., 0] = 16.0, np.arange(of.T) / 4
    return AttentionCall(query, key, value, upstream, seed=seed)


EXACT_WIDTHS = ((3, 3), (4, 1), (16, 16), (64, 64), (256, 256), (256, 256))
"""Of keys and values in exact calls: one coordinate for ranks, one for what all logits share, the rest for content."""
EXACT_LENGTHS = (1, 2, 3, 4, 4, 8, 9, 16, 17, 33, 64, 65, 129)
EXACT_SQUARES = (1, 2, 3, 4, 5, 8, 9, 16, 17)
"""Of keys; sums over as many queries stay short numbers."""
SHARED = (0.0, 1 / 32, 1 / 32, -40.0, -256.0)
"""512 of these is added to all logits: 0, 16, −20480, −131072."""


@st.composite
def exact_calls(draw: DrawFn, *, grouped: bool = False, square: bool | None = False) -> AttentionCall:
    """Calls on which nothing is rounded, in any format: weights are exactly 1, 1/2 or 0, whatever keys are hidden.

    Logits are 4096 apart, but for pairs of keys that share theirs: the exponentials of all others are 0 even in
    float64. Values, upstream gradients and what keys have where queries are 0 are small integers: every product and
    every sum, in any order, is a number of few bits. The scale is 1, whose root is 1.
    """
    T = draw(st.sampled_from(EXACT_SQUARES if square else EXACT_LENGTHS))
    L = T if square else draw(st.sampled_from((1, 2, 3, 8)))
    if square is None and L == T:
        T = L + 1
    B, G = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    H = G * (2 if grouped else 1)
    E, M = draw(st.sampled_from(EXACT_WIDTHS))
    shared = draw(st.sampled_from(SHARED))
    rng = np.random.default_rng(seed := draw(st.integers(0, 2**32 - 1)))
    rank = np.stack([rng.permutation(T) // 2 for _ in range(B * G)]).reshape(B, G, T)
    query = np.zeros((B, H, L, E))
    query[..., 0], query[..., 1] = 64.0, 512.0
    key = rng.integers(-2, 3, (B, G, T, E)).astype(np.float64)
    key[..., 0], key[..., 1] = -64.0 * rank, shared
    value = rng.integers(-2, 3, (B, G, T, M)).astype(np.float64)
    upstream = np.zeros((B, H, L, M))
    upstream[..., 0] = rng.integers(-1, 2, (B, H, L))
    return AttentionCall(query, key, value, upstream, exact=True, seed=seed)


@st.composite
def rounded_calls(
    draw: DrawFn,
    *,
    grouped: bool = False,
    square: bool | None = False,
    numbers: tuple[Numbers, ...] = tuple(Numbers),
) -> AttentionCall:
    """Calls without an option, whose numbers are of any kind."""
    of = draw(sizes(grouped=grouped, square=square))
    return tensors(of, draw(st.sampled_from(numbers)), draw(st.integers(0, 2**32 - 1)))


def plain_calls(*, grouped: bool = False, square: bool | None = False) -> SearchStrategy[AttentionCall]:
    """Calls without an option; one in four is exact."""
    rounded = rounded_calls(grouped=grouped, square=square)
    exact = exact_calls(grouped=grouped, square=square)
    return st.sampled_from((rounded, rounded, rounded, exact)).flatmap(lambda calls: calls)


def with_option(
    option: Callable[[AttentionCall, np.random.Generator], AttentionCall],
    calls: SearchStrategy[AttentionCall] | None = None,
) -> SearchStrategy[AttentionCall]:
    """Calls with something changed that a generator of the call's own seed decides."""
    made = plain_calls() if calls is None else calls
    return made.map(lambda call: option(call, np.random.default_rng((call.seed, 1))))


def scaled_calls() -> SearchStrategy[AttentionCall]:
    """With scales of both kinds: powers of two, and others; 1 is not among them."""

    def option(call: AttentionCall, rng: np.random.Generator) -> AttentionCall:
        if call.exact:  # a kernel may multiply query and key by the root
            return call.replace(scale=float(rng.choice((0.25, 4.0))))
        return call.replace(scale=float(rng.choice((0.5, 0.125, 2.0, 0.3, 1.7, 1 / math.sqrt(3)))))

    return with_option(option)


def default_scale_calls() -> SearchStrategy[AttentionCall]:
    """With the kernel's own scale; wider than one coordinate, where 1/√E is not 1."""
    return (
        plain_calls()
        .filter(lambda call: call.query.shape[-1] > 1)
        .map(lambda call: call.replace(scale=None, exact=False))
    )


def causal_calls(*, square: bool | None = True) -> SearchStrategy[AttentionCall]:
    """Causal ones; with L > T, aligned at the bottom right, the first queries see nothing."""
    return plain_calls(square=square).map(lambda call: call.replace(causal=True))


def a_mask(shape: tuple[int, ...], rng: np.random.Generator) -> Bool[np.ndarray, "..."]:
    """Of random density, in the shape (B, H, L, T) or one that broadcasts to it; each row sees a key."""
    B, H, L, T = shape
    own = [(B, H, L, T), (1, 1, L, T), (B, 1, 1, T), (B, 1, L, T)][int(rng.integers(4))]
    seen = rng.random(own) < rng.choice((0.1, 0.5, 0.9))
    if rng.random() < 0.3:  # padding: what is hidden is at the end
        seen = np.broadcast_to(np.arange(T) < rng.integers(1, T + 1, (own[0], own[1], own[2], 1)), own).copy()
    first = rng.integers(0, T, own[:-1])
    np.put_along_axis(seen, first[..., None], True, axis=-1)
    return np.asarray(seen)


def logits_shape(call: AttentionCall) -> tuple[int, int, int, int]:
    """(B, H, L, T)."""
    B, H, L, _ = call.query.shape
    return B, H, L, call.key.shape[2]


def boolean_mask_calls() -> SearchStrategy[AttentionCall]:
    """With a boolean mask under which each query sees a key."""
    return with_option(lambda call, rng: call.replace(visible=a_mask(logits_shape(call), rng)))


def additive_mask_calls() -> SearchStrategy[AttentionCall]:
    """With a bias of the logits, of −∞ where a key is hidden; each query sees a key."""

    def option(call: AttentionCall, rng: np.random.Generator) -> AttentionCall:
        seen = a_mask(logits_shape(call), rng)
        biased = rng.random() < 0.7 and not call.exact
        bias = rng.integers(-16, 17, seen.shape) / 4 if biased else np.zeros(seen.shape)
        return call.replace(bias=np.where(seen, bias, -np.inf))

    return with_option(option)


def windowed_calls() -> SearchStrategy[AttentionCall]:
    """With a window to the left, to the right, or both, around the diagonal of L = T; half of them causal."""

    def option(call: AttentionCall, rng: np.random.Generator) -> AttentionCall:
        T = call.key.shape[2]
        left, right = (int(x) for x in rng.integers(0, max(2, T), 2))
        kinds = ((left, 0), (left, right), (-1, right), (left, -1))
        return call.replace(window=kinds[int(rng.integers(4))], causal=bool(rng.random() < 0.3))

    return with_option(option, plain_calls(square=True))


def grouped_calls() -> SearchStrategy[AttentionCall]:
    """With two to four heads to a group of keys and values."""
    return plain_calls(grouped=True)


def softcapped_calls() -> SearchStrategy[AttentionCall]:
    """With logits capped at a size that many of them reach."""
    return with_option(lambda call, rng: call.replace(softcap=float(rng.choice((0.5, 2.0, 30.0))), exact=False))


def laid_out_calls() -> SearchStrategy[AttentionCall]:
    """The same numbers otherwise in memory."""
    kinds = st.sampled_from((Memory.TRANSPOSED, Memory.SLICED, Memory.BROADCAST))
    return st.tuples(plain_calls(), kinds).map(lambda drawn: _lay_out(*drawn))


def _lay_out(call: AttentionCall, memory: Memory) -> AttentionCall:
    if memory is not Memory.BROADCAST:
        return call.replace(memory=memory)
    same = {name: np.repeat(getattr(call, name)[:1], len(call.query), axis=0) for name in ("query", "key", "value")}
    return call.replace(memory=memory, **same)
