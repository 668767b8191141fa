"""The space of options and its calls: pairs and triples of levels occur, sizes are of all kinds, exact calls are exact.

B is the number of batch entries, H of heads, G of heads of keys, L of queries, T of keys, E and M the widths of keys
and values. Levels are the values of an option; a plan has one level of each.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations, islice, product

import numpy as np
import pytest

from attention_conformance.calls.attention_call import Alignment, AttentionCall, Memory
from attention_conformance.calls.call_builder import (
    LENGTHS,
    LONGEST,
    MEAN,
    MOST_ENTRIES,
    WORK,
    _affordable,
    attended_rows,
    build_call,
    sums,
)
from attention_conformance.calls.call_space import (
    FACTORS,
    NEUTRAL_PLAN,
    PLAIN,
    Plan,
    fixed_plans,
    plans,
    size_of_array,
)
from attention_conformance.calls.first_calls import plans_of_small_calls
from attention_conformance.calls.model_calls import BLOCKS, MODELS, model_plans, plans_beyond_blocks
from attention_conformance.calls.sizes_and_numbers import Sizes
from attention_conformance.claims.statements import EVERYTHING

FLASH = frozenset(
    ("scale", "default-scale", "causal", "causal-rectangle", "window", "softcap", "log-sum-exp", "grouped-heads")
) | {"hidden-keys"}
SDPA = frozenset(
    ("scale", "default-scale", "causal", "causal-rectangle", "boolean-mask", "additive-mask", "empty-rows", "dropout")
) | {"grouped-heads", "hidden-keys"}
SPACES = {"plain": frozenset[str](), "flash": FLASH, "sdpa": SDPA}


def array(declares: frozenset[str], strength: int, seed: int = 0) -> list[Plan]:
    return list(islice(plans(declares, seed, strength), size_of_array(declares, seed, strength)))


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("seed", [0, 1])
def test_every_pair_of_levels_of_two_options_occurs_in_a_cover(space: str, seed: int) -> None:
    met = {pair for plan in array(SPACES[space], 2, seed) for pair in combinations(sorted(plan.items()), 2)}
    levels = {factor.name: factor.of(SPACES[space]) for factor in FACTORS}
    due = {((a, x), (b, y)) for a, b in combinations(sorted(levels), 2) for x, y in product(levels[a], levels[b])}
    assert met >= due  # calls that models make also have sizes that are no levels
    assert len(due) > 200


def test_every_level_of_an_option_occurs_in_a_fixed_call_without_another_option() -> None:
    levels = {factor.name: factor.of(EVERYTHING) for factor in FACTORS if factor.is_option}
    options = [
        [(name, plan[name]) for name in levels if plan[name] != NEUTRAL_PLAN[name]]
        for plan in fixed_plans(EVERYTHING, 0)
    ]
    alone = {call[0] for call in options if len(call) == 1}
    # Some options are about masks, so their calls need a mask.
    masked = {option for call in options if len(call) == 2 and dict(call).get("mask") for option in call}
    due = {(name, level) for name, some in levels.items() for level in some[1:]}
    assert {name for name, _ in due - alone} == {"columns", "rows", "poison"}
    assert due <= alone | masked


@pytest.mark.parametrize("space", SPACES)
def test_small_calls_have_the_options_of_their_plans(space: str) -> None:
    levels = {factor.name: factor.of(SPACES[space]) for factor in FACTORS}
    plans_of_levels = list(plans_of_small_calls(NEUTRAL_PLAN, levels, SPACES[space]))
    for plan in plans_of_levels:
        call = build_call(plan, SPACES[space], 1)
        assert call.sizes["B"] * call.sizes["H"] * call.sizes["L"] * call.sizes["T"] <= 2**15
        assert (call.window is not None) == (plan["window"] != "none")
        assert (call.visible is not None) == plan["mask"].startswith("boolean")
        assert call.causal == (plan["causal"] != "none")
        assert (call.softcap > 0) == (plan["softcap"] != "none")
    assert len(plans_of_levels) == len({tuple(plan.items()) for plan in plans_of_levels})


def test_every_triple_of_options_occurs_in_a_cover() -> None:
    options = [item for item in FACTORS if item.is_option and len(item.of(FLASH)) > 1]
    assert len(options) >= 6
    result = array(FLASH, 3)
    for three in combinations(options, 3):
        names = [item.name for item in three]
        assert {tuple(plan[name] for name in names) for plan in result} == {
            *product(*(item.of(FLASH) for item in three))
        }


def test_the_same_seed_gives_the_same_plans_and_calls() -> None:
    assert array(SDPA, 2, 5) == array(SDPA, 2, 5)
    assert array(SDPA, 2, 5) != array(SDPA, 2, 6)
    plan = array(SDPA, 2)[20]
    first, second = (build_call(plan, SDPA, 3) for _ in range(2))
    assert (first.query == second.query).all()
    assert first.options == second.options


def test_a_kernel_without_an_option_gets_no_calls_with_it() -> None:
    for number, plan in enumerate(array(frozenset(), 2)):
        call = build_call(plan, frozenset(), number, number)
        assert not call.hides()
        assert call.scale == 1.0
        assert call.query.shape[1] == call.key.shape[1]


CALLS = [
    build_call(plan, FLASH | SDPA, number, number)
    for number, plan in enumerate(islice(plans(FLASH | SDPA, 0, 2), size_of_array(FLASH | SDPA, 0, 2)))
]


def test_sizes_are_reduced_until_they_are_affordable() -> None:
    rng = np.random.default_rng(0)
    for _ in range(1000):
        B, groups, group, L, T, E, M = (int(rng.choice(of)) for of in SIZES)
        lengths = str(rng.choice(["short", "keys", "both", "decode", "long"]))
        of = _affordable(Sizes(B, groups * group, groups, L, T, E, M), group, lengths)
        assert of.B <= B
        assert groups >= of.G
        assert of.L <= L
        assert of.T <= T


SIZES = ((1, 2, 5, 8), (1, 2, 8, 17), (1, 3, 4, 17), LENGTHS, LENGTHS, (1, 64, 224), (1, 9, 257))
"""Values of B, groups, heads of a group, L, T, E and M."""


def test_calls_are_affordable_and_of_many_sizes() -> None:
    sizes = [call.sizes for call in CALLS]
    for size in sizes:
        # Long calls, which have their smallest batch, are within the limit too.
        assert size["B"] * size["H"] * size["L"] * size["T"] * (size["E"] + size["M"]) <= 10 * WORK
        assert size["B"] * size["H"] * size["L"] * size["T"] <= 4 * MOST_ENTRIES
    assert any(size["B"] >= 4 for size in sizes)
    assert any(size["H"] > 16 for size in sizes)
    assert any(64 < size["E"] < 128 for size in sizes)
    assert any(128 < size["E"] < 256 for size in sizes)
    assert any(size["M"] != size["E"] > 128 for size in sizes)
    assert any(size["L"] == 1 and 2000 < size["T"] < 9000 for size in sizes)
    assert any(size["L"] > 500 and size["T"] > 500 for size in sizes)
    assert any(size["T"] > 65536 for size in sizes)


@pytest.mark.parametrize("calls", [CALLS, [build_call(plan, (), 0, k) for k, plan in enumerate(array(frozenset(), 2))]])
def test_each_multiple_of_8_is_a_width_of_keys_and_of_values(calls: list[AttentionCall]) -> None:
    multiples, sizes = set(range(8, 257, 8)), [call.sizes for call in calls]
    assert {size["E"] for size in sizes if size["E"] == size["M"]} >= multiples
    assert {size["E"] for size in sizes if size["E"] != size["M"]} >= multiples
    assert {size["M"] for size in sizes if size["E"] != size["M"]} >= multiples


def levels_of(declares: frozenset[str]) -> dict[str, list[str]]:
    return {factor.name: factor.of(declares) for factor in FACTORS}


@pytest.mark.parametrize("seed", range(10))
def test_several_calls_exceed_each_block_size_with_and_without_causality(seed: int) -> None:
    made = plans_beyond_blocks(NEUTRAL_PLAN, levels_of(FLASH), FLASH, np.random.default_rng(seed))
    sizes = [(plan["causal"] != "none", *map(int, plan["lengths"].split("x"))) for plan in made]
    for causal, block in product((False, True), BLOCKS):
        there = [(L, T) for c, L, T in sizes if c is causal and min(L, T) > block and L % block and T % block]
        assert len(there) >= 2
        assert {L == T for L, T in there} == {False, True}


def test_models_have_their_heads_widths_windows_and_lengths() -> None:
    everything = FLASH | SDPA | {"sinks"}
    calls = [build_call(plan, everything, 0) for plan in model_plans(NEUTRAL_PLAN, levels_of(everything), everything)]
    sizes = [call.sizes for call in calls]
    assert len(calls) == len(MODELS) >= 30
    assert {size["H"] // size["G"] for size in sizes if size["G"] > 1} >= {5, 7, 8, 12, 16}
    assert {(size["E"], size["M"]) for size in sizes} >= {(192, 128), (576, 512), (512, 512)}
    assert {call.window[0] for call in calls if call.window} >= {64, 127, 256, 1023, 4095}
    assert max(size["H"] for size in sizes) == 128
    assert max(size["B"] for size in sizes) == 64
    assert any(size["L"] > 1 and size["T"] > 2049 for size in sizes)
    assert any(size["L"] == 1 < size["G"] < size["H"] and size["T"] > 2049 for size in sizes)
    assert {50.0} <= {call.softcap for call in calls}
    assert any(call.sinks is not None and call.window for call in calls)
    plain = [build_call(plan, (), 0) for plan in model_plans(NEUTRAL_PLAN, levels_of(frozenset()), ())]
    assert not any(call.hides() or call.sizes["H"] != call.sizes["G"] for call in plain)
    assert all(call.sizes["L"] * call.sizes["T"] * call.sizes["H"] * call.sizes["B"] <= MOST_ENTRIES for call in calls)


def test_masks_of_full_shape_differ_between_entries_and_heads() -> None:
    met = set()
    for call in CALLS:
        mask = call.visible if call.visible is not None else call.bias
        B, H = call.query.shape[:2]
        if mask is not None and mask.ndim == 4 and B == H > 1:
            whole = np.broadcast_to(mask, (B, H, *mask.shape[2:]))
            if (whole != np.swapaxes(whole, 0, 1)).any(axis=(2, 3))[~np.eye(B, dtype=bool)].all():
                met.add((mask.dtype.kind, *(size > 1 for size in mask.shape)))
    shapes = {(True, True, True), (False, True, True), (True, False, True), (True, False, False)}
    assert met >= {(kind, *shape, True) for kind in "bf" for shape in shapes}


@pytest.mark.parametrize("space", ["sdpa", "flash"])
def test_some_calls_have_several_queries_and_over_a_thousand_queries_or_keys(space: str) -> None:
    """Each set of plans with all pairs of levels has long calls, each of which takes at most half of the limit WORK."""
    for seed in range(3):
        sizes = [build_call(plan, SPACES[space], seed, k).sizes for k, plan in enumerate(array(SPACES[space], 2, seed))]
        long = [size for size in sizes if size["L"] > 1 and max(size["L"], size["T"]) >= LONGEST[0]]
        assert len(long) >= 2
        assert min(min(size["L"], size["T"]) for size in long) > 60
        work = [size["B"] * size["H"] * size["L"] * size["T"] * (size["E"] + size["M"]) for size in long]
        assert max(work) <= WORK // 2


def test_every_row_sees_a_key_unless_none_is_intended() -> None:
    """Two kinds of rows see no key even without a mask: the first L − T rows, if L > T and the last row is aligned with
    the last key, and rows whose window lies beyond the keys.
    """
    for call in CALLS:
        if call.is_large or (call.visible is None and call.bias is None):
            continue
        near = call.replace(visible=None, bias=None).visibility(Alignment.TOP_LEFT).any(axis=-1)
        visible = call.visibility(Alignment.TOP_LEFT).any(axis=-1)
        if "some see nothing" in call.name and call.visible is not None:
            assert (~visible).any()
        else:
            assert (visible == near).all()


def test_masks_have_all_shapes_and_memory_layouts() -> None:
    masks = [call.visible if call.visible is not None else call.bias for call in CALLS]
    there = [x for x in masks if x is not None]
    assert {x.ndim for x in there} == {2, 4}
    assert {call.mask_memory for call in CALLS} == {
        Memory.CONTIGUOUS, Memory.BROADCAST, Memory.TRANSPOSED, Memory.SLICED,
    }  # fmt: skip


def test_a_part_of_a_large_call_has_the_rows_of_the_whole() -> None:
    call = next(item for item in CALLS if item.is_large and item.causal)
    batch, groups, rows = attended_rows(call)
    size = call.sizes["H"] // call.sizes["G"]
    heads = [g * size + h for g in groups for h in range(size)]
    for alignment in Alignment:
        part = call.part(alignment, batch, groups, rows)
        whole = call.visibility(alignment)[np.ix_(batch, heads, rows)]
        assert (part.visibility(alignment) == whole).all()
    others = np.ones(call.upstream.shape[:-1], dtype=bool)
    others[np.ix_(batch, heads, rows)] = False
    assert not call.upstream[others].any()


def bits(x: float) -> int:
    """Return the number of bits of the significand."""
    numerator = abs(Fraction(x).numerator)
    return (numerator // (numerator & -numerator)).bit_length() if numerator else 0


def weights_of(call: AttentionCall) -> np.ndarray:
    """Return the exact weights of a call in which every logit below the largest is so small that its weight is 0."""
    group = call.query.shape[1] // call.key.shape[1]
    assert call.scale is not None
    assert bits(call.scale**0.5) == 1  # the scale is a power of four, whose square root is exact too
    logits = call.query @ np.swapaxes(np.repeat(call.key, group, axis=1), -1, -2) * call.scale
    visible = call.visibility(Alignment.TOP_LEFT)
    logits = np.where(visible, logits, -np.inf)
    top = logits.max(axis=-1, keepdims=True)
    below = (top - logits)[np.isfinite(logits) & (logits < top)]
    assert (below >= 1000).all()
    tied = logits == top
    return np.where(visible.any(axis=-1, keepdims=True), tied / tied.sum(axis=-1, keepdims=True), 0.0)


def test_nothing_is_rounded_in_an_exact_call() -> None:
    reached = set()
    for call in CALLS:
        if not call.exact or call.is_large:
            continue
        weights = weights_of(call)
        assert all(bits(x) == 1 for x in np.unique(weights) if x)
        reached |= {float(x) for x in np.unique(weights)}
        value = np.repeat(call.value, call.query.shape[1] // call.key.shape[1], axis=1)
        output = weights @ value
        assert max(bits(x) for x in np.unique(output)) <= 8
        scores = call.upstream @ np.swapaxes(value, -1, -2)
        dz = weights * (scores - (weights * scores).sum(axis=-1, keepdims=True))
        assert max(bits(x) for x in np.unique(dz)) <= 8
        assert max(bits(x) for x in np.unique(call.key)) <= 8
    assert {0.0, 0.5, 1.0} <= reached
    assert min(x for x in reached if x) < 0.1


def test_partial_sums_of_a_mean_have_more_bits_than_half_precision() -> None:
    call = sums(Sizes(1, 1, 1, 1, 256, 66, 2), 0)
    assert (call.value.mean(axis=2) == MEAN).all()
    partial = np.cumsum(call.value[0, 0, :, 0])
    assert max(bits(x) for x in partial) > 11
    products = np.cumsum(call.query[0, 0, 0] * call.key[0, 0, 0])
    assert max(bits(x) for x in products) > 11
    assert len(np.unique(call.query @ np.swapaxes(call.key, -1, -2))) == 1


def test_the_first_calls_of_a_cover_have_no_options() -> None:
    for call in CALLS[: len(PLAIN)]:
        assert not {*call.options} - {"exact"}
