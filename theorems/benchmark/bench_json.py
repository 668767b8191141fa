"""The JSON file of results that ``theorems bench --json`` writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from reference_attention.norms import name_of
from theorems.benchmark.bench_tables import LEVEL_NAMES
from theorems.benchmark.comparison import Comparison
from theorems.benchmark.measurements import LEVELS, Measurement
from theorems.benchmark.summary import Summary, summaries

NUCLEAR = ("one_minus_cosine", "excess")
"""JSON names of the two numbers that compare a trained W with the solution of least nuclear norm."""


def as_json(
    named: Sequence[Comparison], generated: Sequence[Comparison], contents: Mapping[str, str | None]
) -> dict[str, Any]:
    """Return all reproducible results (no times) as JSON values; null stands for a level that was not reached.

    Args:
        named: the comparisons of rules on named data.
        generated: the comparisons of rules on generated problems.
        contents: a digest of the content of each data set, by the name of the data set.
    """
    return {
        "levels": list(LEVELS),
        "data": [{**_json_of(comparison), "content": contents.get(comparison.name)} for comparison in named],
        "generated": {
            "problems": [_json_of(comparison, curves=False) for comparison in generated],
            "summary": [
                {
                    "rule": summary.rule,
                    "quartiles": {name: level.quartiles for name, level in _levels(summary)},
                    "not_within": {name: level.not_within for name, level in _levels(summary)},
                    "other_tokens": summary.other_tokens,
                    "not_yet": summary.not_yet,
                    "median_norm": summary.norm,
                    "exponents": summary.exponents,
                }
                for summary in summaries(generated)
            ],
        },
    }


def _levels(summary: Summary) -> list[tuple[str, Any]]:
    return list(zip(LEVEL_NAMES, summary.levels, strict=True))


def _json_of(comparison: Comparison, *, curves: bool = True) -> dict[str, Any]:
    if comparison.no_limit:
        return {"name": comparison.name, "start": comparison.start, "no_limit": comparison.no_limit}
    return {
        "name": comparison.name,
        "start": comparison.start,
        "selects": comparison.alpha,
        "kind": comparison.kind,
        "limit": comparison.limit,
        "margin": comparison.margin,
        "powers": [asdict(power) for power in comparison.powers],
        "rules": [_run(run, curves) for run in comparison.rules],
    }


def _run(run: Measurement, curves: bool) -> dict[str, Any]:
    named = {field: getattr(run.theory, field) for field in ("norm", "steepest")}
    named = {field: None if norm is None else name_of(norm) for field, norm in named.items()}
    return {
        "rule": run.rule,
        "theory": {**asdict(run.theory), **named},
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
        "settled": run.settled,
        "loss": run.loss,
        "representable": run.representable,
        **({} if run.nuclear is None else {"nuclear": dict(zip(NUCLEAR, run.nuclear, strict=True))}),
        **({} if run.spectral is None else {"spectral_margin": run.spectral}),
    }
