"""``theorems regime-map``: the map of :mod:`.regime_map` as a table, or as the document docs/regime_map.md."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from rich.table import Table
from rich.text import Text

from generators.case import Case
from generators.datasets import DATASETS
from generators.user_data import load
from reference_attention.errors import InvalidInput
from reference_attention.files import check_writable, to_json, write_text
from theorems.core.exit_code import Exit
from theorems.core.version import version
from theorems.run.progress import show_progress, totals_of
from theorems.run.schedule import Interrupted, run
from theorems.run.tables import column_table, console
from theorems.token_selection.joint_paths.regime_map import Regime, generate_case, regimes

COLUMNS = ("data", "schedule", "r/R →", "ends at", "from p_mm", "from p_relax", "from p(r/R)", "1 − cos(v, v_mm)")

BEFORE = """\
# Which schedule of radii ends where

Theorem 6 of the paper says that the joint regularization path (v_r, p_R) = argmin of the risk over ‖v‖ ≤ r, ‖p‖ ≤ R has
p_R/R → p_relax/‖p_relax‖ if some inputs are no supports of v_mm. It does not say how r and R grow, which matters:
with r = o(R), or r fixed and large enough for all α, the path ends at p_mm; along r = cR it ends at

    p(c) = argmax over ‖p‖ ≤ 1 of τ   subject to   (k_iα − k_it)·p ≥ τ (i ∈ S),   ≥ max(0, τ − c·slack_i) (i ∉ S)

where slack_i = v̄_mm·Y_i x_iα − Γ is the spare label margin of non-support i. That is p_mm at c = 0, and p_relax
exactly from

    c* = max over i ∉ S of (Θ_relax − ρ_i)⁺ / slack_i,    ρ_i = min_t (k_iα − k_it)·p̄_relax

on. The derivation belongs to `theorem-6`. `reference_attention/paths/scheduled_direction.py` computes p(c) without
using the path, `reference_attention/paths/joint_path.py` follows the path from RΘ < 1 to RΘ = 2²⁰ without using p(c).
The columns are distances ‖p/R − …‖.

    theorems regime-map --markdown
"""

AFTER = """\
Along r = √R the ratio is still 2⁻¹⁰ at the end, which explains its distance to p_mm. Where "from p_relax" is at
rounding level, the non-supports do not compete and the supports are symmetric; elsewhere it is o(1)/R. "generated 0"
and "generated 2" have ρ = 0: p_relax only ties the non-support's tokens, the minimiser keeps 1 − s_iα near slack_i/d_i
instead of 0 (so the theorem's hypothesis "p_R selects α" fails), and its direction still goes to p_relax.

Normalized gradient descent on (v, p) shows the same map with c = lim ‖v‖/‖p‖ (`conjecture-joint-descent`). The
paper's Figure 3(b) has equal step sizes, so c = 1 = c*, and ends just on the relaxed side.
"""


def documented_cases() -> list[Case]:
    """Figure 3(b) and three generated datasets: those of docs/regime_map.md."""
    return [DATASETS["figure-3b"](), *(generate_case(seed) for seed in range(3))]


@dataclass(frozen=True)
class Followed:
    """The schedules of one data set."""

    id: str
    rows: tuple[Regime, ...] = ()
    failed: str = ""
    seconds: float = 0.0

    @property
    def summary(self) -> str:
        """For a line of progress."""
        return self.failed or f"{len(self.rows)} schedules, {self.seconds:.1f} s"


@dataclass(frozen=True)
class Mapped:
    """One data set, to be followed along every schedule: somebody's, or a documented one by its number."""

    id: str
    source: str | int

    @property
    def total(self) -> int | None:
        """Not known."""
        return None

    def run(self, progress: Callable[[int], None]) -> Followed:
        """The rows."""
        began = time.perf_counter()
        case = documented_cases()[self.source] if isinstance(self.source, int) else load(self.source, 0).case
        rows: list[Regime] = []
        try:
            with np.errstate(over="ignore"):  # a line search tries a step that is too long, and takes it back
                for row in regimes(case):
                    rows.append(row)
                    progress(len(rows))
        except ValueError as error:
            raise InvalidInput(f"--data: {case.name} has no regime map: {error}.") from None
        return Followed(self.id, tuple(rows), seconds=time.perf_counter() - began)

    def unfinished_result(self, why: str) -> Followed:
        """None."""
        return Followed(self.id, failed=why or "interrupted")


def regime_map_and_report(data: str | None, *, markdown: bool, jobs: int = 1, json: Path | None = None) -> int:
    """Print the map; say on standard error how it goes on.

    Args:
        data: a file or a named dataset in place of the documented ones.
        markdown: as Markdown; with the text around it for the documented data.
        jobs: processes.
        json: a file for the rows.

    Raises:
        InvalidInput: data that cannot be read, or that have no map; a target that cannot be written.
    """
    if json is not None:
        check_writable(json)
    units = [Mapped(case.name, k) for k, case in enumerate(documented_cases())]
    if data is not None:
        units = [Mapped(load(data, 0).case.name, data)]
    err = console(stderr=True)
    try:
        with show_progress(err, totals_of(units), what="data", steps="schedules") as progress:
            found = run(units, jobs, progress)
    except Interrupted:
        err.print("theorems: interrupted; nothing is printed of a part of the map.", soft_wrap=True)
        return Exit.INTERRUPTED
    rows = [row for one in found for row in one.rows]
    if json is not None:
        held = [{**asdict(row), "ends_at": row.ends_at} for row in rows]
        write_text(json, to_json({"version": version(), "schedules": held}, indent=2) + "\n")
    if not markdown:
        console().print(table(rows))
    elif data is None:
        print(document(rows), end="")
    else:
        print(markdown_table(rows))
    failed = [one for one in found if one.failed]
    for one in failed:
        err.print(f"theorems: {one.id}: {one.failed}", soft_wrap=True)
    return Exit.INCONCLUSIVE if failed else Exit.UPHELD


def cells(row: Regime) -> tuple[str, ...]:
    """One row, as texts."""
    distances = (row.from_mm, row.from_relax, row.from_predicted, row.from_head)
    return (row.data, row.schedule, f"{row.ratio:.4g}", row.ends_at, *(f"{x:.1e}" for x in distances))


def table(rows: Iterable[Regime]) -> Table:
    """For a terminal."""
    made = column_table(*COLUMNS, right=COLUMNS[4:])
    for row in rows:
        made.add_row(*(Text(cell, no_wrap=True) for cell in cells(row)))
    return made


def markdown_table(rows: Iterable[Regime]) -> str:
    """For a document."""
    lines = ["| " + " | ".join(texts) + " |" for texts in (COLUMNS, *map(cells, rows))]
    return "\n".join([lines[0], "|" + "---|" * len(COLUMNS), *lines[1:]])


def document(rows: Iterable[Regime]) -> str:
    """docs/regime_map.md."""
    return f"{BEFORE}\n{markdown_table(rows)}\n\n{AFTER}"
