"""The space from which calls of attention kernels are drawn: factors (properties of a call) and their levels (values).

The first level of a factor is neutral: at the first level of an option, the call does not use the option. A level may
require a capability, and is left out for kernels that do not declare the capability. A plan gives each factor a level.
:func:`plans` yields arrays of plans. Each array covers the space: every pair of levels of two factors occurs in at
least one plan, and on request every triple of levels of three options. :mod:`.call_builder` builds a call from a plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, count
from types import MappingProxyType

import numpy as np
from covertable import make

from attention_conformance.calls.attention_call import CONTEXTS, LONG_STATES, Memory, State
from attention_conformance.calls.common_calls import common_plans
from attention_conformance.calls.first_calls import plans_of_small_calls
from attention_conformance.calls.model_calls import model_plans, plans_beyond_blocks, plans_of_options_beyond_blocks
from attention_conformance.calls.rare_calls import (
    plans_of_calls_in_between,
    plans_of_causal_scales,
    plans_of_moderate_logits,
    plans_of_rare_levels,
    plans_without_keys,
)
from attention_conformance.calls.tile_calls import tile_plans

Plan = Mapping[str, str]
"""A level of each factor, by the factor's name."""


@dataclass(frozen=True)
class Factor:
    """A property of a call that takes one of several levels.

    Attributes:
        name: the name of the factor.
        levels: the levels, each with the capability that it requires (empty for none).
        is_option: whether the factor is an option of kernels, and not a size or a state; triples of levels of options
            are covered on request.
    """

    name: str
    levels: Mapping[str, str]
    is_option: bool = False

    def of(self, declares: Collection[str]) -> list[str]:
        """Return the levels for a kernel that declares the given capabilities."""
        return [level for level, needs in self.levels.items() if not needs or needs in declares]


def _free(*levels: str) -> Mapping[str, str]:
    return MappingProxyType(dict.fromkeys(levels, ""))


def _with(capability: str, *levels: str, neutral: str = "none") -> Mapping[str, str]:
    return MappingProxyType({neutral: ""} | dict.fromkeys(levels, capability))


CAPABILITY_OF_STATE: Mapping[str, str] = MappingProxyType(
    {State.COMPILED: "compiled", State.MACHINE_CODE: "machine-code", State.MANY: "thousands"}
)
"""The slow states of calls, each with the capability that it requires; as few plans as possible have these states."""
MASK_SHAPES = ("B, H, L, T", "L, T", "1, H, L, T", "B, 1, L, T", "B, 1, 1, T")
FACTORS = (
    Factor("lengths", _free("short", "keys", "queries", "both", "decode", "long")),
    Factor("relation", _free("L = T", "L < T", "L > T")),
    Factor("width", _free("narrow", "64", "128", "256", "block", "between")),
    Factor("values", _free("same", "narrower", "wider")),
    Factor("batch", _free("few", "many")),
    Factor("heads", _free("few", "many")),
    Factor("numbers", _free("integers", "normal", "saturated", "far", "growing", "ranks", "sums")),
    Factor("group", _with("grouped-heads", "grouped", "one of keys", neutral="single"), is_option=True),
    Factor(
        "scale", MappingProxyType({"1": "", "power": "scale", "other": "scale", "own": "default-scale"}), is_option=True
    ),
    Factor(
        "mask",
        MappingProxyType(
            {"none": ""}
            | {f"boolean ({shape})": "boolean-mask" for shape in MASK_SHAPES}
            | {f"additive ({shape})": "additive-mask" for shape in MASK_SHAPES}
        ),
        is_option=True,
    ),
    Factor("columns", _with("longer-masks", "beyond the keys", neutral="of keys"), is_option=True),
    Factor("rows", _with("empty-rows", "some see nothing", neutral="all see a key"), is_option=True),
    Factor("causal", _with("causal", "causal"), is_option=True),
    Factor("window", _with("window", "left", "both", "right"), is_option=True),
    Factor("softcap", _with("softcap", "capped"), is_option=True),
    Factor("log-sum-exp", _with("log-sum-exp", "asked for"), is_option=True),
    Factor("dropout", _with("dropout", "dropped"), is_option=True),
    Factor("sinks", _with("sinks", "around", "large"), is_option=True),
    Factor("slopes", _with("alibi", "of heads", "of entries"), is_option=True),
    Factor("lse upstream", _with("log-sum-exp-gradient", "differentiated"), is_option=True),
    Factor("entries", _with("ragged-batch", "of own lengths", "some empty", neutral="whole"), is_option=True),
    Factor("splits", _with("splits", "1", "2", "3", "7", neutral="own"), is_option=True),
    Factor("pages", _with("paged-keys", "16", "64", "256"), is_option=True),
    Factor("descales", _with("fp8-descale", "of heads"), is_option=True),
    Factor("alone", _with("batch-invariance", "an entry"), is_option=True),
    Factor("poison", _with("hidden-keys", "hidden keys exchanged"), is_option=True),
    Factor("memory", _free(*(memory for memory in Memory if memory is not Memory.SINGLE))),
    Factor("placed", _free("qkv", "q", "k", "v")),
    Factor(
        "upstream", _free(*(Memory.CONTIGUOUS, Memory.TRANSPOSED, Memory.LAST_STRIDE, Memory.OFFSET, Memory.SINGLE))
    ),
    Factor("mask memory", _free(*(Memory.CONTIGUOUS, Memory.BROADCAST, Memory.TRANSPOSED, Memory.SLICED))),
    Factor(
        "state",
        MappingProxyType(dict.fromkeys((x for x in State if x not in CONTEXTS), "") | dict(CAPABILITY_OF_STATE)),
    ),
    Factor("wants", _free("qkv", "q", "k", "v", "kv", "nothing")),
)
"""The factors of a call."""
NEUTRAL_PLAN: Plan = MappingProxyType({factor.name: next(iter(factor.levels)) for factor in FACTORS})
"""The first level of each factor."""
SIZED = ("lengths", "relation", "width", "values", "batch", "heads", "numbers")
"""Factors (sizes and kinds of numbers) that are drawn in calls without options, too."""
COSTS: Mapping[str, int] = MappingProxyType({"short": 0, "keys": 1, "queries": 1, "decode": 2, "both": 3, "long": 4})
"""The relative cost of a call, by the level of the factor "lengths"."""
SPECIAL = ("dropout", "poison", "rows")
"""Factors that decide which claims are checked; few plans have other levels of these factors than the neutral one."""
PLAIN = (
    *(("keys", kind) for kind in ("sums", "integers", "ranks", "normal", "far", "growing", "saturated")),
    *(("short", kind) for kind in ("normal", "far", "growing", "integers")),
    *(("decode", kind) for kind in ("normal", "sums")),
    *(("both", kind) for kind in ("sums", "ranks", "normal")),
    *(("keys", kind) for kind in ("normal", "normal")),
    # Only calls without rounding reveal a kernel that adds in half precision: first long sums, then every width.
    *(("decode", "sums"), ("decode", "ranks"), ("decode", "ranks"), ("keys", "ranks")),
)
"""Pairs (level of lengths, kind of numbers) of the first plans of an array, which use no option."""


def plans(declares: Collection[str], seed: int, strength: int) -> Iterator[Plan]:
    """Yield plans, array by array; each array contains every pair of levels that the kernel has.

    Args:
        declares: the capabilities that the kernel declares.
        seed: the same seed gives the same plans.
        strength: 2, or 3 if each array contains every triple of levels of options as well.
    """
    for array in count():
        yield from _array(frozenset(declares), seed + array, strength)


@lru_cache(maxsize=32)
def fixed_plans(declares: frozenset[str], seed: int) -> tuple[Plan, ...]:
    """Return the plans before the first array: small calls, tiles, sizes of models, lengths beyond blocks, rare levels.

    Args:
        declares: the capabilities that the kernel declares.
        seed: draws the lengths just beyond blocks, and combines tiles with options.
    """
    levels = {factor.name: factor.of(declares) for factor in FACTORS}
    beyond = plans_beyond_blocks(NEUTRAL_PLAN, levels, declares, np.random.default_rng((seed, 1)))
    models = model_plans(NEUTRAL_PLAN, levels, declares)
    # The index of a plan, counted from the end, seeds the plan's call: add new plans at the beginning.
    further = (
        *plans_of_small_calls(NEUTRAL_PLAN, levels, declares),
        *tile_plans(NEUTRAL_PLAN, levels, declares, seed),
        *plans_of_calls_in_between(NEUTRAL_PLAN, levels),
        *plans_of_options_beyond_blocks(NEUTRAL_PLAN, levels),
        *plans_without_keys(NEUTRAL_PLAN, declares),
        *plans_of_moderate_logits(NEUTRAL_PLAN),
        *plans_of_causal_scales(NEUTRAL_PLAN, levels),
    )
    return (*further, *models, *beyond, *plans_of_rare_levels(NEUTRAL_PLAN, levels))


def size_of_array(declares: Collection[str], seed: int, strength: int) -> int:
    """Return the number of plans in the first array."""
    return len(_array(frozenset(declares), seed, strength))


@lru_cache(maxsize=32)
def _array(declares: frozenset[str], seed: int, strength: int) -> list[Plan]:
    levels = {factor.name: factor.of(declares) for factor in FACTORS}
    fixed = {name: choices[0] for name, choices in levels.items() if len(choices) == 1}
    free = {name: choices for name, choices in levels.items() if name not in fixed}
    options = [factor.name for factor in FACTORS if factor.is_option and factor.name in free]
    triples = [{"fields": options, "strength": 3}] if strength == 3 and len(options) >= 3 else None
    rows = [{**fixed, **row} for row in make(free, strength=2, salt=str(seed), sub_models=triples)]
    rng = np.random.default_rng(seed)
    unvaried = SPECIAL if strength == 2 else options
    _vary(rows, {name: choices for name, choices in free.items() if name not in unvaried}, rng)
    _make_rare(rows, by_kind=strength == 2)
    plain = [
        dict(NEUTRAL_PLAN)
        | {name: str(rng.choice(levels[name])) for name in SIZED}
        | {"lengths": lengths, "numbers": numbers, "heads": "few"}
        | {"width": levels["width"][k % 6], "batch": levels["batch"][k % 2]}
        for k, (lengths, numbers) in enumerate(PLAIN)
    ]
    common = common_plans(NEUTRAL_PLAN, levels, rng)
    # Small calls come first: if one fails, the smallest failing call is found fast.
    return [
        *plain,
        *common,
        *sorted((rows[k] for k in rng.permutation(len(rows))), key=lambda row: COSTS[row["lengths"]]),
    ]


def _make_rare(rows: list[dict[str, str]], by_kind: bool) -> None:
    """Remove, in place, the slow state of a plan if other plans combine that state with each level of the plan.

    Args:
        rows: the plans.
        by_kind: whether masks of all shapes count as one level.
    """
    names = {factor.name for factor in FACTORS if factor.is_option or factor.name == "wants"}

    def pairs_of(row: Mapping[str, str]) -> list[tuple[str, str, str]]:
        kinds = {name: level.split(" (")[0] if by_kind else level for name, level in row.items() if name in names}
        return [(row["state"], name, level) for name, level in kinds.items()]

    long = [row for row in rows if row["state"] in LONG_STATES]
    pairs = Counter(pair for row in long for pair in pairs_of(row))
    for row in long:
        pairs_of_row = pairs_of(row)
        if all(pairs[pair] > 1 for pair in pairs_of_row):
            pairs.subtract(pairs_of_row)
            row["state"] = State.ONCE


def _vary(rows: list[dict[str, str]], free: Mapping[str, list[str]], rng: np.random.Generator) -> None:
    """Redraw, in place, levels that no pair of levels needs; the covering library sets these to the first level."""
    pairs: Counter[tuple[tuple[str, str], ...]] = Counter(
        pair for row in rows for pair in combinations(sorted(row.items()), 2)
    )
    for row in rows:
        for name, levels in free.items():
            level = str(rng.choice(levels)) if rng.random() < 0.7 else levels[0]
            before = [tuple(sorted(((name, row[name]), other))) for other in row.items() if other[0] != name]
            if all(pairs[pair] > 1 for pair in before):
                pairs.subtract(before)
                row[name] = level
                pairs.update(tuple(sorted(((name, level), other))) for other in row.items() if other[0] != name)
