"""The JSON of ``theorems bench``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from reference_attention.norms import name_of
from theorems.benchmark.comparison import Comparison
from theorems.benchmark.measure import LEVELS, Measurement
from theorems.benchmark.summary import Summary, summaries
from theorems.benchmark.table import LEVEL_NAMES

NUCLEAR = ("one_minus_cosine", "excess")
"""What is said of W against the one of least nuclear norm."""


def as_json(
    named: Sequence[Comparison], generated: Sequence[Comparison], contents: Mapping[str, str | None]
) -> dict[str, Any]:
    """Everything that is the same again with the same options; a level not reached is null.

    Args:
        contents: of named data, a digest of what they hold.
    """
    return {
        "levels": list(LEVELS),
        "data": [{**_json_of(one), "content": contents.get(one.name)} for one in named],
        "generated": {
            "problems": [_json_of(one, curves=False) for one in generated],
            "summary": [
                {
                    "rule": one.rule,
                    "quartiles": {name: level.quartiles for name, level in _levels(one)},
                    "not_within": {name: level.not_within for name, level in _levels(one)},
                    "other_tokens": one.other_tokens,
                    "median_norm": one.norm,
                    "exponents": one.exponents,
                }
                for one in summaries(generated)
            ],
        },
    }


def _levels(one: Summary) -> list[tuple[str, Any]]:
    return list(zip(LEVEL_NAMES, one.levels, strict=True))


def _json_of(one: Comparison, *, curves: bool = True) -> dict[str, Any]:
    if one.no_limit:
        return {"name": one.name, "start": one.start, "no_limit": one.no_limit}
    return {
        "name": one.name,
        "start": one.start,
        "selects": one.alpha,
        "kind": one.kind,
        "limit": one.limit,
        "margin": one.margin,
        "powers": [asdict(power) for power in one.powers],
        "rules": [_run(run, curves) for run in one.rules],
    }


def _run(run: Measurement, curves: bool) -> dict[str, Any]:
    steepest = run.theory.steepest
    return {
        "rule": run.rule,
        "theory": {**asdict(run.theory), "steepest": None if steepest is None else name_of(steepest)},
        "iterations": dict(zip(LEVEL_NAMES, run.iterations, strict=True)),
        "norm": run.norm,
        "one_minus_cosine": run.one_minus_cosine,
        "one_minus_cosine_at_most": run.at_most,
        "margin_gap": None if run.gap is None else {**asdict(run.gap), "norm": name_of(run.gap.norm)},
        "margins": dict(zip(("2", "inf"), run.margins, strict=True)),
        "rate": None if run.rate is None else asdict(run.rate),
        **({"curve": dict(zip(("iterations", "one_minus_cosine"), run.curve, strict=True))} if curves else {}),
        "selects": run.selected,
        "selects_limit": run.selects_limit,
        "representable": run.representable,
        **({} if run.nuclear is None else {"nuclear": dict(zip(NUCLEAR, run.nuclear, strict=True))}),
    }
