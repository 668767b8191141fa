"""The explanations of several heads of a layer on the same data, as a table with a row per head."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

import numpy as np
from rich.console import Console

from generators.finding import format_tokens
from reference_attention.errors import InvalidInput
from reference_attention.files import from_json, to_json
from reference_attention.html_table import html_table
from reference_attention.training.descent import Stop
from theorems.explanations.content import small
from theorems.explanations.explanation import Explanation
from theorems.explanations.factored_ends import TrainedEnd
from theorems.explanations.sentences import TOKENS, length_of
from theorems.run.tables import column_table
from theorems.run.text_report import plain_text

COLUMNS = (
    "head",
    "tokens",
    "optimal in",
    "max 1 − s",
    "locally optimal",
    "norm",
    "share of margin",
    "1 − cos",
    "to W_⋆",
    "flow on W",
    "flow on K, Q",
)
WORDS = ("tokens", "locally optimal", "flow on W", "flow on K, Q")


@dataclass(frozen=True, eq=False)
class HeadExplanations:
    """Explanations of the heads of a layer.

    Attributes:
        name: the name of the layer.
        data: the name of the data.
        heads: the explanation of each head.
    """

    name: str
    data: str
    heads: tuple[Explanation, ...]

    @property
    def is_decided(self) -> bool:
        """Return whether the end of the flow is decided for each head."""
        return all(head.is_decided for head in self.heads)

    @property
    def opening(self) -> str:
        """Return a line on the layer, the data and the columns of the table."""
        sizes = f"n = {self.heads[0].case.problem.n}, T = {length_of(self.heads[0])}"
        return (
            f"{self.name}, {len(self.heads)} heads, on {self.data}: {sizes}; tokens of largest weight at the trained"
            " weights, their margin, and where the flow from there goes"
        )

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """Return a row of the table for each head."""
        return [_row(number, head) for number, head in enumerate(self.heads)]

    def __repr__(self) -> str:
        """Return the name of the layer and the number of heads."""
        return f"HeadExplanations({self.name}, {len(self.heads)} heads)"

    def __str__(self) -> str:
        """Return the table as text."""
        return plain_text(self.write).strip()

    def _repr_html_(self) -> str:
        return f"<p>{escape(self.opening)}</p>\n{html_table('Heads', COLUMNS, self.rows)}"

    def write(self, out: Console) -> None:
        """Print the table on a terminal."""
        out.print(self.opening)
        table = column_table(*COLUMNS, right=[column for column in COLUMNS if column not in WORDS])
        table.padding = (0, 0)
        for row in self.rows:
            table.add_row(*row)
        out.print(table)

    def to_json(self) -> str:
        """Return the JSON that ``theorems explain --json`` writes: for each head the JSON of its own explanation."""
        heads = [from_json(head.to_json()) for head in self.heads]
        return to_json({"module": self.name, "data": self.data, "heads": heads}, indent=2) + "\n"

    def plot(self, kind: str = "svg") -> bytes:
        """Refuse to draw several heads at once.

        Raises:
            InvalidInput: always.
        """
        raise InvalidInput(f"--plot: only one head can be drawn; choose it, as in {self.name}[0].")


def _row(number: int, head: Explanation) -> tuple[str, ...]:
    layer = head.layer
    assert layer is not None
    scores = head.case.problem.scores
    best = (scores[np.arange(len(scores)), layer.tokens] == scores.max(axis=1)).sum()
    tokens = "ties" if layer.tied_inputs.size else format_tokens(layer.tokens, TOKENS)
    local = "" if layer.chosen is None else "yes" if layer.chosen.locally_optimal else "no"
    apart = ["?" if x.one_minus_cosine is None else f"{x.one_minus_cosine:.2g}" for x in layer.in_norms]
    share = f"{100 * layer.in_norms[0].share:.3g}%" if layer.in_norms else ""
    selects, factors = head.path.selects, [end for end in head.ends if end.trained == "(K, Q)"]
    flow = "none" if selects is None and head.is_decided else "?" if selects is None else format_tokens(selects, TOKENS)
    return (
        str(number),
        tokens,
        f"{best} of {len(scores)}",
        small(float(layer.off.max())),
        local,
        f"{layer.norm:.3g}",
        share,
        *[*apart, "", ""][:2],
        flow,
        tokens_of_factors(factors[0]) if factors else "not followed",
    )


def tokens_of_factors(end: TrainedEnd) -> str:
    """Return the tokens that the flow on (K, Q) selects: "none" if it ends at a finite point, "?" if undecided."""
    if end.grows:
        return format_tokens(end.selects, TOKENS)
    return "?" if end.ended == str(Stop.FAILED) else "none"
