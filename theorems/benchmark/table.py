"""The tables of ``theorems bench``, for a terminal and for a document, and its JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from theorems.benchmark.measure import LEVELS, Kind
from theorems.benchmark.summary import Summary, summaries
from theorems.benchmark.timing import Ratio
from theorems.benchmark.work import DIMENSION, Compared
from theorems.run.tables import column_table

NOT_WITHIN = "-"
LEVEL_NAMES = tuple(f"{level:g}" for level in LEVELS)


def _count(value: int | None) -> str:
    return NOT_WITHIN if value is None else str(value)


def parts(
    named: Sequence[Compared], generated: Sequence[Compared], steps: int, times: Sequence[Ratio]
) -> Iterator[tuple[str, tuple[str, ...], list[tuple[str, ...]], str]]:
    """Heading, columns, rows and a note, table after table."""
    ran = [one for one in named if not one.no_limit]
    if ran:
        yield (
            "Iterations until 1 − cos to the limit direction stays at or below each level",
            ("data", "rule", *LEVEL_NAMES, "‖p‖ at the cap", "1 − cos there", "at most", "selects"),
            list(_named_rows(ran)),
            f"{NOT_WITHIN}: not within {steps} iterations; at most: what descent-from-a-margin proves of 1 − cos there,"
            " if the run came to where it speaks.",
        )
    if named:
        yield (
            "The limits: p_mm of the tokens that the gradient flow from the start selects",
            ("data", "start", "selects", "which is", "limit direction", "margin Θ"),
            [_limit_row(one) for one in named],
            "GMM: the optimal tokens; LMM: locally optimal ones.",
        )
    found = summaries(generated)
    if found:
        count = sum(not one.no_limit for one in generated)
        yield (
            f"The same on {count} generated problems: lower quartile/median/upper quartile",
            ("rule", *LEVEL_NAMES, "median ‖p‖", "other tokens"),
            list(_spread_rows(found)),
            _generated_note(generated, steps),
        )
        yield (
            f"Of these {count}, not within {steps} iterations",
            ("rule", *LEVEL_NAMES),
            [(one.rule, *(str(level.not_within) for level in one.levels)) for one in found],
            "",
        )
    elif generated:
        yield ("Generated problems", ("problem", "why"), [(one.name, one.no_limit) for one in generated], "")
    if times:
        yield (
            f"Time of one iteration, as a multiple of one of {times[0].beside} run in turns beside it",
            ("data", "rule", "ratio"),
            [(one.data, one.rule, f"{one.ratio:.2f}") for one in times],
            "Measured on this machine just now: not repeatable like the rest.",
        )


def _named_rows(named: Sequence[Compared]) -> Iterator[tuple[str, ...]]:
    for one in named:
        for run in one.rules:
            selects = "the limit's tokens" if run.selects_limit else f"other tokens, {_tokens(run.selected)}"
            if not run.representable:
                selects = "a step overflowed"
            at_most = NOT_WITHIN if run.at_most is None else f"{run.at_most:.1e}"
            counts = (_count(count) for count in run.iterations)
            yield one.name, run.rule, *counts, f"{run.norm:.4g}", f"{run.one_minus_cosine:.1e}", at_most, selects


def _limit_row(one: Compared) -> tuple[str, ...]:
    start = f"({_numbers(one.start)})"
    if one.no_limit:
        return one.name, start, "", "no limit", one.no_limit, ""
    return one.name, start, _tokens(one.alpha), one.kind, f"({_numbers(one.limit)})", f"{one.margin:.4g}"


def _spread_rows(found: Sequence[Summary]) -> Iterator[tuple[str, ...]]:
    for one in found:
        cells = []
        for level in one.levels:
            some = any(count is not None for count in level.quartiles)
            cells.append("/".join(map(_count, level.quartiles)) if some else NOT_WITHIN)
        yield one.rule, *cells, f"{one.norm:.4g}", str(one.other_tokens)


def _generated_note(generated: Sequence[Compared], steps: int) -> str:
    kinds = [one.kind for one in generated if not one.no_limit]
    left_out = len(generated) - len(kinds)
    return (
        f"{len(generated)} problems like the paper's random trials (n = 4, T = 6, d = {DIMENSION}, from p = 0);"
        f" the limit is GMM on {kinds.count(Kind.GLOBAL)}, LMM on {kinds.count(Kind.LOCAL)};"
        f" {left_out} left out, because the flow has no limit direction there."
        f" {NOT_WITHIN}: not within {steps} iterations;"
        " other tokens: problems on which other tokens than those of the limit have the largest weights at the cap."
    )


def _tokens(alpha: Sequence[int]) -> str:
    return ", ".join(map(str, alpha))


def _numbers(values: Sequence[float], most: int = 4) -> str:
    shown = ", ".join(f"{x:.4g}" for x in values[:most])
    return shown if len(values) <= most else f"{shown}, … {len(values)} entries"


def print_tables(
    out: Console, named: Sequence[Compared], generated: Sequence[Compared], steps: int, times: Sequence[Ratio]
) -> None:
    """For a terminal."""
    for heading, columns, rows, note in parts(named, generated, steps, times):
        out.print(Text(heading, "bold"), soft_wrap=True)
        out.print(_table(columns, rows))
        if note:
            out.print(f"{note}\n", soft_wrap=True)


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = column_table(*columns, right=(*LEVEL_NAMES, "‖p‖ at the cap", "1 − cos there", "at most", "ratio"))
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table


def markdown(named: Sequence[Compared], generated: Sequence[Compared], steps: int, times: Sequence[Ratio]) -> str:
    """For a document."""
    lines = []
    for heading, columns, rows, note in parts(named, generated, steps, times):
        cells = [columns, ("---",) * len(columns), *rows]
        table = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in cells)
        lines += [f"{heading}:", table, *([note] if note else [])]
    return "\n\n".join(lines) + "\n"


def as_json(named: Sequence[Compared], generated: Sequence[Compared]) -> dict[str, Any]:
    """Everything that is the same again with the same options; a level not reached is null."""
    return {
        "levels": list(LEVELS),
        "data": [_json_of(one) for one in named],
        "generated": {
            "problems": [_json_of(one) for one in generated],
            "summary": [
                {
                    "rule": one.rule,
                    "quartiles": {name: level.quartiles for name, level in _levels(one)},
                    "not_within": {name: level.not_within for name, level in _levels(one)},
                    "other_tokens": one.other_tokens,
                    "median_norm": one.norm,
                }
                for one in summaries(generated)
            ],
        },
    }


def _levels(one: Summary) -> list[tuple[str, Any]]:
    return list(zip(LEVEL_NAMES, one.levels, strict=True))


def _json_of(one: Compared) -> dict[str, Any]:
    if one.no_limit:
        return {"name": one.name, "start": one.start, "no_limit": one.no_limit}
    return {
        "name": one.name,
        "start": one.start,
        "selects": one.alpha,
        "kind": one.kind,
        "limit": one.limit,
        "margin": one.margin,
        "rules": [
            {
                "rule": run.rule,
                "iterations": dict(zip(LEVEL_NAMES, run.iterations, strict=True)),
                "norm": run.norm,
                "one_minus_cosine": run.one_minus_cosine,
                "one_minus_cosine_at_most": run.at_most,
                "selects": run.selected,
                "selects_limit": run.selects_limit,
                "representable": run.representable,
            }
            for run in one.rules
        ],
    }
