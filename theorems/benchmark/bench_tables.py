"""The tables of ``theorems bench``."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from reference_attention.norms import name_of
from theorems.benchmark.bench_units import DIMENSION
from theorems.benchmark.comparison import Comparison
from theorems.benchmark.earlier_run import Row
from theorems.benchmark.measurements import EUCLIDEAN, LEVELS, SURE, Kind
from theorems.benchmark.optimisers.optimiser import Theory
from theorems.benchmark.summary import Summary, summaries
from theorems.run.tables import column_table

NOT_WITHIN = "-"
MARGINS = ("of the ℓ2 margin", "of the ℓ∞ margin")
NUCLEAR = ("1 − cos, Frobenius", "1 − cos, nuclear", "excess of the nuclear norm")
SPECTRAL = "of the spectral margin"
NUMBERS = (
    *NUCLEAR,
    SPECTRAL,
    "loss",
    "not yet",
    "‖p‖ at the cap",
    "1 − cos",
    "proven bound",
    "other tokens",
    "ratio",
    "guarantee",
    "measured",
    "fitted b",
    *MARGINS,
)
LEVEL_NAMES = tuple(f"{level:g}" for level in LEVELS)


def _count(value: int | None) -> str:
    return NOT_WITHIN if value is None else str(value)


def parts(
    named: Sequence[Comparison], generated: Sequence[Comparison], steps: int
) -> Iterator[tuple[str, tuple[str, ...], list[tuple[str, ...]], str]]:
    """Yield the heading, the column names, the rows and a note of each table.

    Args:
        named: the comparisons of rules on named data.
        generated: the comparisons of rules on generated problems.
        steps: the number of iterations of each run.
    """
    ran = [comparison for comparison in named if not comparison.no_limit]
    if ran:
        yield (
            "Iterations until 1 − cos to the limit direction stays at or below each level",
            ("data", "rule", "limit", *LEVEL_NAMES, "‖p‖ at the cap", "loss", "1 − cos", "proven bound", "selects"),
            list(_named_rows(ran)),
            "limit: the norm whose max-margin direction is the limit; unknown: no theorem about attention gives a"
            " limit, and p_mm is used.\n"
            f"{NOT_WITHIN}: not within the cap of {steps} iterations.\n"
            "loss: L(p) at the cap.\n"
            "proven bound: the bound of descent-from-a-margin on 1 − cos at the cap, for rules with steps along −∇L,"
            " once the run satisfies its assumptions.\n"
            f"selects: not yet, if tokens other than the limit's have the largest weights at the cap, but those weights"
            f" are below {SURE:g}, or the tokens changed after the first tenth of the run.",
        )
        guaranteed = list(_guarantee_rows(ran))
        if guaranteed:
            yield (
                "Guarantees: proven bounds at the cap, and measured values",
                ("data", "rule", "of", "by", "guarantee", "measured", "ratio"),
                guaranteed,
                "margin gap: 1 − (m/‖p‖)/γ, where m is the smallest margin of p and γ the largest possible one at"
                " ‖p‖ = 1, in the norm named.\n"
                "guarantee: the proven upper bound; vacuous: the bound is 1 or more and says nothing; vacuous"
                " bounds are shown for Adam only.\n"
                "ratio: measured/guarantee.",
            )
        yield (
            "Rates: the exponent b of ‖p/‖p‖ − limit‖ ≈ C/tᵇ or C/(log t)ᵇ over the last two decades of t, and margins",
            ("data", "rule", "in", "fitted b", "theory's", *MARGINS),
            list(_rate_rows(ran)),
            "in: the variable of the power law, t or log t.\n"
            "fitted b: by least squares in logarithms, for runs of at least 1000 iterations; ±: its jackknife error"
            " over blocks of the tail; a large error means that the curve is not a power law.\n"
            "theory's: the b of a run with p = u p_mm + O(1), u → ∞.\n"
            "of the ℓ2 margin, of the ℓ∞ margin: the smallest margin of p at the cap, divided by the largest possible"
            " one at the same ‖p‖_2, or ‖p‖_∞.",
        )
    if any(run.nuclear or run.spectral for comparison in ran for run in comparison.rules):
        yield (
            "W at the cap, compared with the solutions of ATT-SVM of least Frobenius and least nuclear norm",
            ("data", "rule", *NUCLEAR, SPECTRAL),
            list(_nuclear_rows(ran)),
            "excess: ‖W‖_⋆/(m(W) C_⋆) − 1, where m(W) is the smallest margin and C_⋆ the least nuclear norm for"
            " margin 1; excess 0 means that W has the least nuclear norm possible for its margin.\n"
            "of the spectral margin: m(W)/‖W‖_op, divided by the largest possible value; Muon's steps increase it.",
        )
    if named:
        yield (
            "The limits: solutions of ATT-SVM for the tokens that the gradient flow from the start selects",
            ("data", "start", "selects", "which is", "norm", "limit direction", "margin Θ"),
            [row for comparison in named for row in _limit_rows(comparison)],
            "GMM: the optimal tokens; LMM: other tokens that are locally optimal.",
        )
    spreads = summaries(generated)
    if spreads:
        count = sum(not comparison.no_limit for comparison in generated)
        yield (
            f"Iterations to each level on {count} generated problems: lower quartile/median/upper quartile",
            ("rule", *LEVEL_NAMES, "median ‖p‖"),
            list(_spread_rows(spreads)),
            _generated_note(generated, steps),
        )
        yield (
            f"Number of these {count} problems whose runs do not reach the level within {steps} iterations;"
            " quartiles of the fitted b",
            ("rule", "limit", *LEVEL_NAMES, "other tokens", "not yet", "in", "fitted b"),
            list(_missing_rows(spreads)),
            "",
        )
    elif generated:
        yield (
            "Generated problems",
            ("problem", "why"),
            [(comparison.name, comparison.no_limit) for comparison in generated],
            "",
        )
    theories = {run.rule: run.theory for comparison in (*named, *generated) for run in comparison.rules}
    if theories:
        yield (
            "What theory says of the rules",
            ("rule", "limit", "b", "proven by, or known for other data"),
            [(rule, theory.limit, _in(theory), theory.source) for rule, theory in theories.items()],
            "",
        )


def _named_rows(named: Sequence[Comparison]) -> Iterator[tuple[str, ...]]:
    for comparison in named:
        for run in comparison.rules:
            selects = "the limit's tokens" if run.selects_limit else f"other tokens, {token_ids(run.selected)}"
            if not (run.selects_limit or run.settled):
                selects = "not yet"
            if not run.representable:
                selects = "a step overflowed"
            at_most = NOT_WITHIN if run.at_most is None else f"{run.at_most:.1e}"
            counts = (_count(count) for count in run.iterations)
            at_the_end = f"{run.norm:.4g}", f"{run.loss:.4g}", f"{run.one_minus_cosine:.1e}", at_most
            yield comparison.name, run.rule, run.theory.limit, *counts, *at_the_end, selects


def _guarantee_rows(named: Sequence[Comparison]) -> Iterator[tuple[str, ...]]:
    for comparison in named:
        for run in comparison.rules:
            if run.at_most is not None:
                proven = _guarantee(run.at_most, run.one_minus_cosine)
                yield comparison.name, run.rule, "1 − cos", "descent-from-a-margin", *proven
            if run.gap is not None:
                yield (
                    comparison.name,
                    run.rule,
                    f"{name_of(run.gap.norm)} margin gap",
                    run.gap.statement,
                    *_guarantee(run.gap.at_most, run.gap.measured),
                )


def _guarantee(at_most: float | None, measured: float) -> tuple[str, str, str]:
    if at_most is None:
        return "vacuous", f"{measured:.1e}", NOT_WITHIN
    return f"{at_most:.1e}", f"{measured:.1e}", f"{measured / at_most:.2g}"


def _nuclear_rows(named: Sequence[Comparison]) -> Iterator[tuple[str, ...]]:
    for comparison in named:
        for run in comparison.rules:
            if run.nuclear is None and run.spectral is None:
                continue
            apart = excess = NOT_WITHIN
            if run.nuclear is not None:
                apart, excess = f"{run.nuclear[0]:.1e}", f"{run.nuclear[1]:.3g}"
            spectral = NOT_WITHIN if run.spectral is None else f"{run.spectral:.4f}"
            yield comparison.name, run.rule, f"{run.one_minus_cosine:.1e}", apart, excess, spectral


def _rate_rows(named: Sequence[Comparison]) -> Iterator[tuple[str, ...]]:
    for comparison in named:
        for run in comparison.rules:
            rate = run.rate
            fitted = NOT_WITHIN if rate is None else f"{rate.exponent:.3f} ± {rate.error:.3f}"
            theory = NOT_WITHIN if run.theory.exponent is None else f"{run.theory.exponent:g}"
            shares = (f"{share:.4f}" for share in run.margins)
            yield comparison.name, run.rule, str(run.theory.against), fitted, theory, *shares


def _in(theory: Theory) -> str:
    if theory.exponent is None:
        return NOT_WITHIN
    proven = f", {theory.proven:g} proven" if theory.proven is not None else ""
    return f"{theory.exponent:g} in {theory.against}{proven}"


def _limit_rows(comparison: Comparison) -> Iterator[tuple[str, ...]]:
    start = f"({_numbers(comparison.start)})"
    if comparison.no_limit:
        yield comparison.name, start, "", "no limit", "", comparison.no_limit, ""
        return
    first = comparison.name, start, token_ids(comparison.alpha), comparison.kind
    yield *first, name_of(EUCLIDEAN), f"({_numbers(comparison.limit)})", f"{comparison.margin:.4g}"
    for power in comparison.powers:
        yield *first, name_of(power.norm), f"({_numbers(power.direction)})", f"{power.margin:.4g}"


def _spread_rows(spreads: Sequence[Summary]) -> Iterator[tuple[str, ...]]:
    for summary in spreads:
        cells = []
        for level in summary.levels:
            some = any(count is not None for count in level.quartiles)
            cells.append("/".join(map(_count, level.quartiles)) if some else NOT_WITHIN)
        yield summary.rule, *cells, f"{summary.norm:.4g}"


def _missing_rows(spreads: Sequence[Summary]) -> Iterator[tuple[str, ...]]:
    for summary in spreads:
        lower, median, upper = summary.exponents
        fitted = NOT_WITHIN if math.isnan(median) else f"{lower:.2f}/{median:.2f}/{upper:.2f}"
        missing = (str(level.not_within) for level in summary.levels)
        yield (
            summary.rule,
            summary.theory.limit,
            *missing,
            str(summary.other_tokens),
            str(summary.not_yet),
            str(summary.theory.against),
            fitted,
        )


def _generated_note(generated: Sequence[Comparison], steps: int) -> str:
    kinds = [comparison.kind for comparison in generated if not comparison.no_limit]
    left_out = len(generated) - len(kinds)
    return (
        f"{len(generated)} problems like the paper's random trials (n = 4, T = 6, d = {DIMENSION}, from p = 0);"
        f" the limit is GMM on {kinds.count(Kind.GLOBAL)}, LMM on {kinds.count(Kind.LOCAL)};"
        f" {left_out} left out, because the flow has no limit direction there.\n"
        f"{NOT_WITHIN}: not within {steps} iterations.\n"
        "other tokens: number of problems on which the run has settled on other tokens than the limit's at the cap.\n"
        "not yet: number on which other tokens have the largest weights, but the run has not settled."
    )


def token_ids(alpha: Sequence[int], most: int = 6) -> str:
    """Return the selected tokens as text; if more than ``most``, the token that all inputs share, or the first few."""
    if len(alpha) <= most:
        return ", ".join(map(str, alpha))
    if len(set(alpha)) == 1:
        return f"{alpha[0]} of all {len(alpha)}"
    return f"{', '.join(map(str, alpha[:most]))}, … {len(alpha)} tokens"


def _numbers(values: Sequence[float], most: int = 4) -> str:
    text = ", ".join(f"{x:.4g}" for x in values[:most])
    return text if len(values) <= most else f"{text}, … {len(values)} entries"


def print_tables(out: Console, named: Sequence[Comparison], generated: Sequence[Comparison], steps: int) -> None:
    """Print the tables on a terminal."""
    for heading, columns, rows, note in parts(named, generated, steps):
        out.print(Text(heading, "bold"), soft_wrap=True)
        out.print(_table(columns, rows))
        if note:
            out.print(f"{note}\n", soft_wrap=True)


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    return column_table(*columns, rows=rows, right=(*LEVEL_NAMES, *NUMBERS))


def comparison_table(rows: Sequence[Row], path: str) -> Table:
    """Return the table that shows, for each rule and data set, the change since the earlier run in file ``path``."""
    columns = "data", "rule", f"against {path}", "iterations"
    cells = [(row.data, row.rule, row.verdict.value, row.changes) for row in rows]
    return _table(columns, cells)
