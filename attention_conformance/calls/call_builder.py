"""Construction of a call of an attention kernel from a plan: a level (value) of each factor (property of the call).

Sizes (B, H, …: see :class:`.AttentionCall`) are drawn first, then numbers, then options. Each step draws from its own
generator. So two plans that differ in one level give calls that differ only in that level, as far as sizes allow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from zlib import crc32

import numpy as np
from jaxtyping import Bool

from attention_conformance.calls.attention_call import ENTRIES, Alignment, AttentionCall, Memory, State
from attention_conformance.calls.call_space import Plan
from attention_conformance.calls.common_calls import BETWEEN, MANY_HEADS
from attention_conformance.calls.further_options import with_further_options
from attention_conformance.calls.rare_calls import HIDES
from attention_conformance.calls.sizes_and_numbers import LONG, SMALL, Numbers, Sizes, tensors

LONGER = (511, 512, 513, 640, 1000, 1023, 1024, 1025)
LONGEST = (1500, 1537, 2047, 2048)
"""Numbers of queries, or of keys for several queries, in calls that test long sequences with few, narrow heads."""
LATENT = 576
"""Widths E and M whose sum is at least this number are never reduced: kernels for such widths take no others."""
DECODED = (500, 511, 512, 513, 1000, 1023, 1025, 2048, 2049, 4095, 4097, 8191, 8192)
"""Numbers of keys in calls with a single query."""
LENGTHS = (*SMALL, *LONG, *LONGER, *LONGEST, *DECODED)
BLOCKS = (8, 16, 32, 33, 63, 65, 127, 129, 255)
WORK = 1 << 23
"""The largest number of multiplications, B · H · L · T · (E + M), so that a call takes a small fraction of a second."""
MOST_ENTRIES = 1 << 20
"""The most entries that keys and values together, queries and outputs together, or logits may have."""
HUGE = 1 << 16
"""The number of keys that an index of 16 bits can distinguish."""
EXACT_KEYS = 257
"""The most keys of an exact call with hidden keys; with more keys, more than two of them could have equal logits."""
EXACT_ROWS = 16
"""The most rows of a group with an upstream gradient in an exact call: sums over more rows need too many bits."""
LONGEST_IN_STATE: Mapping[str, int] = MappingProxyType({State.COMPILED: 5, State.MACHINE_CODE: 5, State.MANY: 17})
"""The most queries and keys in each slow state: compilation, for example, unrolls a loop over keys."""
CHECKED = (2, 2, 6)
"""The numbers of batch entries, of groups and of rows that have an upstream gradient in a large call."""


def build_call(plan: Plan, declares: Collection[str], seed: int, number: int = 0) -> AttentionCall:
    """Build the call of a plan.

    Args:
        plan: a level of each factor.
        declares: the capabilities of the kernel.
        seed: the same seed gives the same call.
        number: the index of the plan, negative for :func:`.fixed_plans`; at some indices the call gets more than 65536
            keys.
    """
    drawing = _Drawing(dict(plan), frozenset(declares), seed)
    sized = any(plan[name][0].isdigit() for name in ("values", "batch", "lengths"))  # the plan fixes a size
    often = number > 0 and number % 48 == 23 and plan["state"] not in LONGEST_IN_STATE and not sized
    huge = often or (number != 0 and plan["lengths"] == "huge")
    sizes = drawing.sizes(HUGE + 1 + abs(number) if huge else 0)
    call = drawing.numbers(sizes, "ranks" if huge else drawing.plan["numbers"])
    if huge and drawing.plan["dropout"] == "none":  # the mean of many values around zero would hide a fault
        call = call.replace(value=np.maximum(np.abs(call.value), 1.0))
    for step in STEPS:
        call = step(drawing, call)
    call = _check_some_rows(call, drawing.rng("looked at"))
    return call.replace(name=", ".join(f"{k} {v}" for k, v in plan.items() if v != "none"))


@dataclass
class _Drawing:
    """The plan, the kernel's capabilities and the seed, from which each step of building one call draws."""

    plan: dict[str, str]
    declares: frozenset[str]
    seed: int

    def rng(self, step: str) -> np.random.Generator:
        return np.random.default_rng((self.seed, crc32(step.encode())))

    @property
    def hides(self) -> bool:
        return any(self.plan[name] != "none" for name in ("mask", "causal", "window"))

    @property
    def must_be_square(self) -> bool:
        """Return whether the call needs as many queries as keys, because the kernel declares no diagonal for L ≠ T."""
        diagonal = self.plan["causal"] != "none" or self.plan["window"] != "none"
        return diagonal and "causal-rectangle" not in self.declares

    def sizes(self, keys: int) -> Sizes:
        """Draw the sizes of the call, with ``keys`` keys or, if that is 0, with a random number of keys."""
        rng, plan = self.rng("sizes"), self.plan
        if "x" in plan["lengths"]:
            return self._given_sizes()
        cached = int(plan["lengths"]) if plan["lengths"].isdigit() else 0
        lengths = "decode" if cached else plan["lengths"]
        if lengths == "decode" and self.must_be_square:
            lengths = "keys"
        relation = "L = T" if self.must_be_square else plan["relation"]
        T = int(rng.choice(LONG if lengths in ("keys", "both") else SMALL))
        L = int(rng.choice(LONG if lengths in ("queries", "both") else SMALL))
        if lengths == "decode":
            L, T = 1, cached or int(rng.choice(DECODED))
        elif lengths == "long":
            longest = LONGER if relation == "L = T" else LONGEST  # LONGEST for both L and T would give too many logits
            L, T = (int(rng.choice(some)) for some in (LONGER, longest))
        if lengths != "decode":
            L, T = _in_relation(L, T, relation, rng)
        most = LONGEST_IN_STATE.get(plan["state"], 0)
        if most:  # a compiler treats axes of size 1 differently
            L, T = (min(max(size, 2 + (size >= other)), most - (size < other)) for size, other in ((L, T), (T, L)))
            L = 1 if lengths == "decode" else L
        widths = {"narrow": SMALL, "block": BLOCKS, "between": BETWEEN}
        E = int(rng.choice(widths.get(plan["width"]) or (int(plan["width"]),)))
        wider, narrower = E + 1 if E < 128 else E + 32, max(1, E // 2 + 1 - E % 2)
        values = plan["values"]
        M = int(values) if values.isdigit() else {"same": E, "wider": wider}.get(values, narrower)
        many = plan["heads"] != "few" and not most
        H = int(rng.choice(MANY_HEADS if many else (2, 3) if most else (1, 2, 3)))
        H = int(plan["heads"]) if plan["heads"].isdigit() and not most else H
        group = {"single": 1, "grouped": int(rng.choice((2, 3, 4))), "one of keys": H if many else 4}[plan["group"]]
        G = 1 if plan["group"] == "one of keys" else max(1, round(H / group)) if many else H
        B = int(rng.choice((2, 3) if most else (4, 5, 8) if plan["batch"] == "many" else (1, 2, 3)))
        B = int(plan["batch"]) if plan["batch"].isdigit() else B
        if plan["scale"] == "own":
            E = max(E, 2)  # so that 1/√E is not 1
        sizes = Sizes(B, G * group, G, L, T, E, M)
        if keys and plan["dropout"] == "none":
            return Sizes(1, group, 1, 1, keys, min(E, 4), min(M, 4 if M == E else 3))
        if plan["dropout"] != "none":
            T = max(16, min(T, 65))
            L = T if L == sizes.T or relation == "L = T" else max(8, min(L, 65))
            group = min(group, 4)
            return Sizes(min(B, 3), min(sizes.G, 3) * group, min(sizes.G, 3), L, T, min(E, 16), T)
        if plan["numbers"] in ("ranks", "sums"):
            sizes = self._of_exact(sizes)
        sizes = _affordable(sizes, group, lengths)
        return sizes if plan["entries"] == "whole" else _with_all_rows_checked(replace(sizes, B=max(2, sizes.B)), group)

    def _given_sizes(self) -> Sizes:
        """Return the sizes that the plan states; a kernel without grouped heads gets as many heads as groups."""
        plan = self.plan
        L, T = map(int, plan["lengths"].split("x"))
        H, G = map(int, plan["heads"].split("/"))
        H = H if "grouped-heads" in self.declares else G
        return Sizes(int(plan["batch"]), H, G, L, T, int(plan["width"]), int(plan["values"]))

    def _of_exact(self, sizes: Sizes) -> Sizes:
        E, M = max(sizes.E, 3), sizes.M
        if self.hides:
            T = min(sizes.T, EXACT_KEYS)
            return replace(sizes, E=E, M=M, T=T, L=T if sizes.L == sizes.T else sizes.L)
        if self.plan["numbers"] == "sums":
            T = 2 ** max(2 if self.plan["state"] in LONGEST_IN_STATE else 4, min(12, round(math.log2(sizes.T))))
            return replace(sizes, E=E, M=M, T=T, L=sizes.L if sizes.L != sizes.T else T)
        return replace(sizes, E=E, M=M)

    def numbers(self, sizes: Sizes, kind: str) -> AttentionCall:
        """Draw query, key, value and upstream gradient."""
        seed = int(self.rng("numbers").integers(2**32))
        if self.plan["dropout"] != "none":
            call = tensors(sizes, Numbers.NORMAL, seed)
            # Divide queries so that logits are small and no weight is tiny; with unit vectors as values the output is
            # the weights.
            value = np.broadcast_to(np.eye(sizes.T), call.value.shape).copy()
            return call.replace(query=call.query / math.sqrt(sizes.E), value=value)
        if kind == "products":
            return products(sizes, seed)
        if kind == "moderate":
            return moderate(sizes, seed)
        if kind == "blocks":
            return blocks(sizes, seed)
        if kind == "sums" and not self.hides and sizes.T & (sizes.T - 1) == 0 and sizes.T > 1:
            return sums(sizes, seed)
        if kind in ("ranks", "sums") and sizes.E > 1:
            return ranks(sizes, seed)
        return tensors(sizes, Numbers.INTEGERS if kind in ("ranks", "sums") else Numbers(kind), seed)


def _in_relation(L: int, T: int, relation: str, rng: np.random.Generator) -> tuple[int, int]:
    if relation == "L = T":
        return max(L, T), max(L, T)
    less, more = sorted((L, T))
    more += int(rng.choice((1, 3, 8))) if less == more else 0
    return (less, more) if relation == "L < T" else (more, less)


def _affordable(full: Sizes, group: int, lengths: str) -> Sizes:
    """Return the sizes reduced until the call is cheap enough; in calls that test lengths, these are reduced last."""
    is_long = lengths in ("long", "decode")
    is_longest = lengths == "long" and full.L != full.T and max(full.L, full.T) >= LONGEST[0]

    def costs(sizes: Sizes) -> bool:
        tensors = max(
            sizes.B * sizes.G * sizes.T * (sizes.E + sizes.M), sizes.B * sizes.H * sizes.L * (sizes.E + sizes.M)
        )
        logits = sizes.B * sizes.H * sizes.L * sizes.T
        return logits * (sizes.E + sizes.M) > (WORK // 2 if is_longest else WORK) or max(tensors, logits) > MOST_ENTRIES

    def shorter(size: int, least: int) -> int:
        return max((length for length in LENGTHS if least <= length <= size // 2), default=size)

    def half(size: int, least: int = 1) -> int:
        return min(size, max(least, size // 2))

    def lengths_of(sizes: Sizes, least: int) -> Sizes:
        if sizes.L == sizes.T:
            size = shorter(sizes.T, least)
            return replace(sizes, L=size, T=size)
        longer, other = ("L", "T") if sizes.L > sizes.T else ("T", "L")
        more, less = getattr(sizes, longer), getattr(sizes, other)
        if more == less + 1:  # the smaller length is reduced first
            return replace(sizes, **{other: shorter(less, least)})
        return replace(sizes, **{longer: max(shorter(more, least), less + 1)})

    def fewer_groups(sizes: Sizes) -> Sizes:
        # The heads of a single group may have been halved already: their number must not grow again.
        return replace(sizes, G=half(sizes.G), H=half(sizes.G) * group) if sizes.G > 1 else sizes

    def other_length_of(sizes: Sizes, least: int) -> Sizes:
        other = "T" if sizes.L > sizes.T else "L"
        return replace(sizes, **{other: shorter(getattr(sizes, other), least)})

    def narrower(sizes: Sizes, least: int) -> Sizes:
        return replace(sizes, E=half(sizes.E, least), M=half(sizes.M, least)) if full.E + full.M < LATENT else sizes

    ways: list[Callable[[Sizes], Sizes]] = [
        lambda sizes: replace(sizes, B=half(sizes.B)) if is_long else lengths_of(sizes, 63),
        lambda sizes: fewer_groups(sizes) if is_long else sizes,
        lambda sizes: replace(sizes, H=half(sizes.H, 2)) if is_long and sizes.G == 1 else sizes,
        lambda sizes: narrower(sizes, 8) if is_longest else lengths_of(sizes, 511),
        lambda sizes: other_length_of(sizes, 127) if is_longest else sizes,
        lambda sizes: narrower(sizes, 4) if is_long else sizes,
        lambda sizes: replace(sizes, B=half(sizes.B, 2)),
        lambda sizes: lengths_of(sizes, 31),
        fewer_groups,
        lambda sizes: lengths_of(sizes, 5),
        lambda sizes: replace(sizes, B=1, H=half(sizes.H, 2) if sizes.G == 1 else sizes.H),
    ]
    while costs(full):
        smaller = next((reduced for way in ways if (reduced := way(full)) != full), full)
        if smaller == full:
            break
        full = smaller
    return full


def _with_all_rows_checked(sizes: Sizes, group: int) -> Sizes:
    """Return the sizes, reduced until all rows of a call are checked: first heads, then batch entries, then lengths."""
    while sizes.B * sizes.H * sizes.L * sizes.T > ENTRIES:
        if sizes.G > 1:
            sizes = replace(sizes, G=sizes.G // 2, H=sizes.G // 2 * group)
        elif sizes.B > 2:
            sizes = replace(sizes, B=sizes.B // 2)
        else:
            sizes = replace(sizes, L=max(1, sizes.L // 2), T=max(1, sizes.T // 2))
    return sizes


# ---- numbers on which nothing is rounded ---------------------------------------------------------------------------

SHARED = (0.0, 1 / 32, 1 / 32, -40.0, -256.0)
"""Entries of the keys' column 1, where queries are 512: they add 0, 16, −20480 or −131072 to all logits of a row."""


def ranks(sizes: Sizes, seed: int) -> AttentionCall:
    """Build a call without rounding, in which every weight is exactly 1, 1/2 or 0, whichever keys are hidden.

    Keys with weight 0 have logits at least 4096 below the largest. Values, upstream gradients and the columns of keys
    in which queries are 0 hold small integers, so that every product and every sum, in any order, is a number of few
    bits. The scale is 1, because some kernels multiply queries and keys by the root of the scale.
    """
    rng = np.random.default_rng(seed)
    B, G, T, E = sizes.B, sizes.G, sizes.T, sizes.E
    order = np.stack([rng.permutation(T) for _ in range(B * G)]).reshape(B, G, T)
    if T > HUGE:  # give the first keys the lowest logits: an index that overflows would point to them
        order = np.arange(T)[::-1] ^ (order[..., :1] & 1)
    rank = np.minimum(np.broadcast_to(order, (B, G, T)) // 2, EXACT_KEYS // 2)
    query = np.zeros((B, sizes.H, sizes.L, E))
    query[..., 0], query[..., 1] = 64.0, 512.0
    key = rng.integers(-2, 3, (B, G, T, E)).astype(np.float64)
    key[..., 0], key[..., 1] = -64.0 * rank, float(rng.choice(SHARED))
    value = rng.integers(-2, 3, (B, G, T, sizes.M)).astype(np.float64)
    return AttentionCall(query, key, value, _few_upstream(sizes, EXACT_ROWS, rng), exact=True, seed=seed)


def products(sizes: Sizes, seed: int) -> AttentionCall:
    """Build a call without rounding whose products q·k overflow float16, while up to 32 different logits do not.

    With the scale 1/256, logits are 2048 apart. A kernel may multiply queries and keys by 1/16, the root of the scale,
    first.
    """
    call = ranks(sizes, seed)
    query, key = call.query * np.where(np.arange(sizes.E) == 0, 128.0, 1.0), call.key.copy()
    key[..., 1] = 0.0
    key[..., 0] += 64.0 * 16  # the largest q·k overflows float16 if q or k is not scaled first
    return call.replace(query=query, key=key, scale=OF_PRODUCTS)


BLOCK = 64
"""The number of keys in a block of :func:`blocks`."""


def blocks(sizes: Sizes, seed: int) -> AttentionCall:
    """Build a call without rounding in which each row attends to the first two keys of a random block before its own.

    These two keys have logits of 4096, all others at most 128 in absolute value, so that every weight is exactly 1, 1/2
    or 0, with causality, too. A lost block changes all rows that attend to it. There are at most E blocks.
    """
    rng = np.random.default_rng(seed)
    B, H, L, E = sizes.B, sizes.H, sizes.L, sizes.E
    query = np.zeros((B, H, L, E))
    key = rng.integers(-2, 3, (B, sizes.G, sizes.T, E)).astype(np.float64)
    # A row's own block may lie behind the diagonal if L ≠ T.
    most = np.minimum(np.maximum(np.arange(L) - 4, 0), sizes.T - 1) // BLOCK
    chosen = rng.integers(0, most + 1, (B, H, L))
    np.put_along_axis(query, chosen[..., None], 64.0, axis=-1)
    for block in range((sizes.T - 1) // BLOCK + 1):
        key[:, :, block * BLOCK : block * BLOCK + 2, block] = 64.0
    value = rng.integers(-2, 3, (B, sizes.G, sizes.T, sizes.M)).astype(np.float64)
    upstream = np.zeros((B, H, L, sizes.M))
    upstream[..., 0] = rng.choice((-1.0, 1.0), (B, H, L))  # of a call of this size only a few rows are kept
    return AttentionCall(query, key, value, upstream, exact=True, seed=seed)


OF_PRODUCTS = 1 / 256
"""The scale of the calls that :func:`products` builds."""


def moderate(of: Sizes, seed: int) -> AttentionCall:
    """Build a call with products q·k of 0 and −3, in which only the keys with the smaller product have nonzero values.

    No product is rounded. A kernel that multiplies logits by a wrong factor of 1.5 reduces the weights of these keys,
    and thus the output, by three quarters, which even half precision shows.
    """
    rng = np.random.default_rng(seed)
    is_low = np.broadcast_to((np.arange(of.T) % 2 == 1)[:, None], (of.B, of.G, of.T, 1))
    query, key = np.zeros((of.B, of.H, of.L, of.E)), np.zeros((of.B, of.G, of.T, of.E))
    query[..., 0], key[..., 0] = 1.0, np.where(is_low, -3.0, 0.0)[..., 0]
    value = np.where(is_low, rng.choice((-2.0, -1.0, 1.0, 2.0), (of.B, of.G, 1, of.M)), 0.0)
    return AttentionCall(query, key, value, rng.choice((-1.0, 1.0), (of.B, of.H, of.L, of.M)), seed=seed)


MEAN = 107
"""The mean of each pair of values in :func:`sums`, of seven bits; half precision cannot represent sums of a few pairs.

A term of 107 that is added to a long sum in half precision is rounded to 96, 112 or 128, in the same direction for many
terms, so that the computed mean is wrong by more than one rounding. The mean is far from powers of two, because a term
of 127, for example, would always be rounded to 128, a small error.
"""


def sums(sizes: Sizes, seed: int) -> AttentionCall:
    """Build a call whose results need no rounding, while partial sums need more bits than half precision has.

    All keys have the same logit, their number T is a power of two, and values come in pairs with a common mean. A
    correct kernel adds in float32. The products of entries of q and k that add up to q·k cancel in pairs; the entries
    of k in them are odd.
    """
    rng = np.random.default_rng(seed)
    B, G, T, E, M = sizes.B, sizes.G, sizes.T, sizes.E, sizes.M
    apart = 2.0 * rng.integers(0, 16, (B, G, T // 2, M)) + 1
    value = np.empty((B, G, T, M))
    value[:, :, 0::2], value[:, :, 1::2] = MEAN + apart, MEAN - apart
    query, key = np.zeros((B, sizes.H, sizes.L, E)), rng.integers(-2, 3, (B, G, T, E)).astype(np.float64)
    query[..., 1], key[..., 1] = 512.0, float(rng.choice(SHARED[:3]))
    n = (E - 2) // 2
    if n:
        query[..., 2 : 2 + 2 * n] = 15.0
        key[..., 2 : 2 + n] = 2.0 * rng.integers(4, 9, (B, G, T, n)) + 1
        key[..., 2 + n : 2 + 2 * n] = -key[..., 2 : 2 + n]
    return AttentionCall(query, key, value, _few_upstream(sizes, 1, rng), exact=True, seed=seed)


def _few_upstream(sizes: Sizes, most: int, rng: np.random.Generator) -> np.ndarray:
    """Draw an upstream gradient: ±1 in the first column of at most ``most`` rows of each group, 0 elsewhere."""
    upstream = np.zeros((sizes.B, sizes.G, sizes.H // sizes.G * sizes.L, sizes.M))
    rows = upstream.shape[2]
    for b in range(sizes.B):
        for g in range(sizes.G):
            chosen = rng.permutation(rows)[: min(most, rows)]
            upstream[b, g, chosen, 0] = rng.choice((-1.0, 1.0), len(chosen))
    return upstream.reshape(sizes.B, sizes.H, sizes.L, sizes.M)


# ---- options -------------------------------------------------------------------------------------------------------

Step = Callable[[_Drawing, AttentionCall], AttentionCall]


def _scale(drawing: _Drawing, call: AttentionCall) -> AttentionCall:
    level, rng = drawing.plan["scale"], drawing.rng("scale")
    if level == "own":
        return call.replace(scale=None, exact=False)
    if level == "1":
        return call.replace(scale=OF_PRODUCTS) if drawing.plan["numbers"] == "products" else call
    if level in ("zero", "negative"):
        return call.replace(scale=0.0 if level == "zero" else -0.5, exact=False)
    if call.exact:  # powers of four: a kernel may multiply query and key by the scale's root
        return call.replace(scale=float(rng.choice((0.25, 4.0))))
    values = (0.5, 0.125, 2.0) if level == "power" else (0.3, 1.7, 1 / math.sqrt(3))
    return call.replace(scale=float(rng.choice(values)))


def _softcap(drawing: _Drawing, call: AttentionCall) -> AttentionCall:
    if drawing.plan["softcap"] == "none":
        return call
    random_softcap = float(drawing.rng("softcap").choice((0.5, 2.0, 30.0)))
    level = drawing.plan["softcap"]
    return call.replace(softcap=float(level) if level.isdigit() else random_softcap, exact=False)


def _diagonal(drawing: _Drawing, call: AttentionCall) -> AttentionCall:
    rng, plan = drawing.rng("window"), drawing.plan
    longest = max(2, min(call.key.shape[2], 40))
    left, right = (int(x) for x in rng.integers(0, longest, 2))
    windows = {"none": None, "left": (left, 0), "both": (left, right), "right": (-1, right)}
    window = tuple(map(int, level.split("+"))) if "+" in (level := plan["window"]) else windows[level]
    return call.replace(causal=plan["causal"] != "none", window=window)


HIDING: Mapping[str, float] = MappingProxyType(
    dict(zip(HIDES, (-np.inf, -1e4, -np.finfo(np.float64).max), strict=True))
)
"""Biases that hide a key; a kernel whose format has too small a range gets the format's most negative number."""


def _mask(drawing: _Drawing, call: AttentionCall) -> AttentionCall:
    """Draw a mask that shows each row a key, except the rows that the plan leaves without a key.

    If the plan replaces numbers in hidden keys (poison), at least one key is seen by no row.
    """
    plan, rng = drawing.plan, drawing.rng("mask")
    kind, _, axes = plan["mask"].partition(" (")
    if kind == "none":
        return call
    B, H, L, _ = call.query.shape
    T = call.key.shape[2]
    size_of_axis = {"B": B, "H": H, "L": L, "T": T, "1": 1}
    shape = tuple(size_of_axis[axis] for axis in axes.removesuffix(")").split(", "))
    visible = rng.random(shape) < rng.choice((0.1, 0.5, 0.9))
    of_keys = shape[-1] == T
    if of_keys and rng.random() < (0.6 if shape[1:3] == (1, 1) else 0.3):  # padding: hidden keys are at the end
        visible = np.broadcast_to(np.arange(T) < rng.integers(1, T + 1, (*shape[:-1], 1)), shape).copy()
    if "padding" in plan:  # the first entry of the batch is the shortest, the last one is not padded
        seen = np.linspace(T // 4, T, shape[0]).astype(int)
        visible = np.broadcast_to(np.arange(T) < seen[:, None, None, None], shape).copy()
    if T > 1 and of_keys and plan["poison"] != "none":
        visible[..., rng.permutation(T)[: max(1, T // 4)]] = False
    if "hides" in plan and visible.all() and T > 1:
        visible[..., 0] = False
    visible = _show_each_row_a_key(call, visible)
    if plan["rows"] != "all see a key" and kind == "boolean":
        empty = rng.random(shape[:-1]) < 0.4
        empty.reshape(-1)[0] = True
        if empty.ndim == 3 and rng.random() < 0.5:
            # Only rows of the first batch entry, or else head, see no key: what a kernel computes for these must not
            # enter other rows.
            others = empty[1:] if len(empty) > 1 else empty[:, 1:]
            others[...] = False
        visible[empty] = False
    if kind == "boolean":
        return call.replace(visible=visible)
    biased = rng.random() < 0.7 and not call.exact
    bias = rng.integers(-16, 17, shape) / 4 if biased else np.zeros(shape)
    hides = HIDING[plan.get("hides", "-inf")]
    masks = {"bias": np.where(visible, bias, hides), "mask_format": plan.get("mask format", "")}
    return call.replace(**masks, exact=call.exact and np.isneginf(hides))


def _show_each_row_a_key(call: AttentionCall, mask: Bool[np.ndarray, "..."]) -> Bool[np.ndarray, "..."]:
    """Return the mask with keys shown, so that each row sees one of the keys that causality and window allow."""
    mask = mask.copy()
    for alignment in Alignment if call.causal or call.window is not None else (Alignment.TOP_LEFT,):
        near = call._near(np.arange(call.query.shape[2]), alignment)
        full = np.broadcast_to(mask, (*call.query.shape[:3], near.shape[-1])) & near
        for b, h, i in np.argwhere(~full.any(axis=-1) & near.any(axis=-1)):
            at = (b, h, i, int(np.flatnonzero(near[i])[0]))
            mask[tuple(0 if n == 1 else k for n, k in zip(mask.shape, at[4 - mask.ndim :], strict=True))] = True
    return mask


def _surroundings(drawing: _Drawing, call: AttentionCall) -> AttentionCall:
    """Set the memory layout, the state and the requested results of a call."""
    plan = drawing.plan
    memory, upstream = Memory(plan["memory"]), Memory(plan["upstream"])
    tensors = {name: getattr(call, name) for name in ("query", "key", "value")}
    if memory is Memory.BROADCAST:
        tensors = {name: np.repeat(x[:1], x.shape[0], axis=0) for name, x in tensors.items()}
    if memory is Memory.HEADS:
        tensors = {name: np.repeat(x[:, :1], x.shape[1], axis=1) for name, x in tensors.items()}
    if upstream is Memory.SINGLE:
        # 1/M, as of a mean over M outputs, rounded to a power of two, keeps gradients in the range of half precision.
        tensors |= {"upstream": np.full(call.upstream.shape, 2.0 ** -math.ceil(math.log2(call.upstream.shape[-1])))}
    if plan["state"] == State.SELF and tensors["query"].shape == tensors["key"].shape:
        tensors["key"] = tensors["query"]
    hides = call.hides() and call.key.shape[2] > 1
    masked = call.visible is not None or call.bias is not None
    return call.replace(
        **tensors,
        memory=memory,
        placed=plan["placed"] if memory is not Memory.CONTIGUOUS else "qkv",
        upstream_memory=upstream,
        mask_memory=Memory(plan["mask memory"]) if masked else Memory.CONTIGUOUS,
        beyond=int(drawing.rng("columns").choice((1, 3, 8))) if masked and plan["columns"] != "of keys" else 0,
        state=State(plan["state"]),
        wants="" if plan["wants"] == "nothing" else plan["wants"],
        log_sum_exp=plan["log-sum-exp"] != "none",
        dropout=_share_of_dropped(drawing),
        poison=plan["poison"] != "none" and hides and call.query.shape[2] * call.key.shape[2] <= MOST_ENTRIES // 16,
        # If every output has an upstream gradient, sums over rows need too many bits to be exact.
        exact=call.exact and upstream is not Memory.SINGLE and plan["state"] != State.AUTOCAST,
    )


def _share_of_dropped(drawing: _Drawing) -> float:
    """Return the probability with which a weight is dropped; the plan may name it."""
    if drawing.plan["dropout"] == "none":
        return 0.0
    return float(drawing.plan.get("share") or drawing.rng("dropout").choice((0.25, 0.5)))


def _further(drawing: _Drawing, call: AttentionCall) -> AttentionCall:
    return with_further_options(call, drawing.plan, drawing.rng)


STEPS: Sequence[Step] = (_scale, _softcap, _diagonal, _mask, _surroundings, _further)


def _check_some_rows(call: AttentionCall, rng: np.random.Generator) -> AttentionCall:
    """Set the upstream gradient to zero outside a few rows of a large call: only these rows are checked."""
    if not call.is_large:
        return call
    sizes = call.sizes
    chosen = []
    for axis, most in zip("BGL", CHECKED, strict=True):
        size = sizes[axis]
        # The last index is included, since there an index in a kernel overflows first.
        chosen.append(sorted({size - 1, *(int(k) for k in rng.permutation(size)[: most - 1])}))
    batch, groups, rows = chosen
    group = sizes["H"] // sizes["G"]
    heads = [g * group + h for g in groups for h in range(group)]
    is_kept = np.zeros(call.upstream.shape, dtype=bool)
    is_kept[np.ix_(batch, heads, rows)] = True
    upstream = np.where(is_kept, call.upstream, 0.0)
    if not upstream.any() and call.upstream.any():
        upstream[batch[-1], heads[-1], rows[-1], 0] = 1.0
    memory = Memory.CONTIGUOUS if call.upstream_memory is Memory.SINGLE else call.upstream_memory
    lse_upstream = None if call.lse_upstream is None else np.where(is_kept[..., 0], call.lse_upstream, 0.0)
    return call.replace(upstream=upstream, upstream_memory=memory, lse_upstream=lse_upstream)


def attended_rows(call: AttentionCall) -> tuple[Sequence[int], Sequence[int], Sequence[int]]:
    """Return the indices of batch entries, groups and rows with an upstream gradient; without any, the last of each."""
    sizes = call.sizes
    attended = call.upstream.any(axis=-1)
    by_group = attended.reshape(sizes["B"], sizes["G"], -1, sizes["L"]).any(axis=2)
    by_axis = [np.unique(places).tolist() for places in np.nonzero(by_group)]
    batch, groups, rows = (indices or [size - 1] for indices, size in zip(by_axis, by_group.shape, strict=True))
    return batch, groups, rows
