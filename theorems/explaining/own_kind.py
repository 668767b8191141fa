"""The explanation of data of a paper's own kind: its words, assumptions, and the statements that apply."""

from __future__ import annotations

import io
from dataclasses import dataclass
from html import escape

from rich.console import Console

from generators.subject import Subject
from generators.user_data import Given
from reference_attention.errors import InvalidInput
from reference_attention.files import to_json
from reference_attention.notebook import html_table
from theorems.core.version import version
from theorems.explaining.applying import Applicability, applicability, is_explained
from theorems.run.findings import NamedFinding, as_json, findings
from theorems.run.registry.suite import statements
from theorems.run.tables import assumptions_table, print_case
from theorems.run.text_report import WIDTH


@dataclass(frozen=True, eq=False)
class OwnExplanation:
    """What there is to be said of data that are no keys and scores.

    Attributes:
        name: what the data are called.
        case: the data.
        looked: assumptions on them.
        speaks: the statements about data of this kind, and whether they apply.
    """

    name: str
    case: Subject
    looked: tuple[NamedFinding, ...]
    speaks: tuple[Applicability, ...]

    @property
    def is_decided(self) -> bool:
        """Whether every assumption is decided."""
        return all(one.holds is not None for one in self.looked)

    @property
    def words(self) -> list[str]:
        """What the paper says of the data, then which statements apply and what the others lack."""
        apply = [f"{one.id} ({one.title})" for one in self.speaks if one.applies]
        lack = [f"{one.id} ({', '.join(found.id for found in one.missing)})" for one in self.speaks if not one.applies]
        said = [f"What applies: {', '.join(apply)}." if apply else "No statement applies."]
        said += [f"What does not, and what it lacks: {', '.join(lack)}."] if lack else []
        return [*self.case.explain(), *said]

    @property
    def heading(self) -> str:
        """The data in a line."""
        sizes = ", ".join(f"{name} = {size}" for name, size in self.case.sizes.items())
        return f"{self.name}: {self.case.noun}{sizes and f', {sizes}'}"

    def __repr__(self) -> str:
        return f"Explanation({self.heading})"

    def __str__(self) -> str:
        held = io.StringIO()
        self.write(Console(file=held, width=WIDTH, markup=False, emoji=False, highlight=False, no_color=True))
        return "\n".join(line.rstrip() for line in held.getvalue().strip().splitlines())

    def _repr_html_(self) -> str:
        rows = [(one.id, str(one.holds), one.evidence) for one in self.looked]
        return "\n".join(
            [
                *(f"<p>{escape(line)}</p>" for line in (self.heading, *self.words)),
                html_table("Assumptions", ("assumption", "holds", "because"), rows),
            ]
        )

    def write(self, out: Console) -> None:
        """To a terminal."""
        out.print(self.heading)
        print_case(out, self.case)
        if self.looked:
            out.print(assumptions_table(self.looked))
        for paragraph in self.words:
            out.print(f"{paragraph}\n")

    def to_json(self) -> str:
        """The text that ``theorems explain --json`` writes."""
        held = {
            "version": version(),
            "data": self.name,
            **self.case.sizes,
            "assumptions": as_json(self.looked),
            "statements": [
                {"id": one.id, "applies": one.applies, "missing": [found.id for found in one.missing]}
                for one in self.speaks
            ],
            "words": self.words,
        }
        return to_json(held, indent=2) + "\n"

    def plot(self, kind: str = "svg") -> bytes:
        """Nothing is drawn.

        Raises:
            InvalidInput: always.
        """
        raise InvalidInput(f"--plot: nothing is drawn of {self.case.noun}; leave it out.")


def own_explanation_of(case: Subject, name: str) -> OwnExplanation:
    """Everything about the data."""
    chosen = [one for one in statements().values() if isinstance(case, one.about) and is_explained(one)]
    found = tuple(findings(Given(case), chosen))
    return OwnExplanation(name, case, found, tuple(applicability(one, "given", found) for one in chosen))
