"""The explanation of data: the facts, with their display as text, HTML, JSON and drawing."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from generators.case import Case
from theorems.explanations.content import html, text, write
from theorems.explanations.explanation_json import as_json
from theorems.explanations.facts import Facts, facts_of
from theorems.explanations.plot import render_plot
from theorems.explanations.sentences import headline


class Explanation(Facts):
    """Explanation of which tokens attention selects on given data, why, and which theorems apply (:class:`Facts`)."""

    def __repr__(self) -> str:
        """Return the headline: what the flow selects."""
        return f"Explanation({headline(self)})"

    def __str__(self) -> str:
        """Return the whole explanation as text."""
        return text(self)

    def write(self, out: Console) -> None:
        """Print the explanation on a terminal."""
        write(self, out)

    def _repr_html_(self) -> str:
        return html(self)

    def to_json(self) -> str:
        """Return the text that ``theorems explain --json`` writes: strict JSON, with the exact rationals."""
        return as_json(self)

    def plot(self, kind: str = "svg") -> bytes:
        """Return the drawing that ``theorems explain --plot`` writes, as the bytes of a svg, png or pdf file.

        Raises:
            InvalidInput: matplotlib is not installed, or ``kind`` is none of svg, png and pdf.
        """
        return render_plot(self, kind)


def explanation_of(
    case: Case, name: str, starts: int = 0, seed: int = 0, rules: Sequence[str] = (), train: str = ""
) -> Explanation:
    """Explain the data, see :func:`theorems.explanations.facts.facts_of`."""
    return Explanation(**vars(facts_of(case, name, starts, seed, rules, train)))
