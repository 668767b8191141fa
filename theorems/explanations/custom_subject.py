"""The explanation of data of a kind that a paper defines: the paper's sentences, assumptions, applicable statements."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from rich.console import Console

from generators.subject import Subject
from generators.user_data import Given
from reference_attention.errors import InvalidInput
from reference_attention.files import to_json
from reference_attention.html_table import html_table
from theorems.core.version import version
from theorems.explanations.applicability import Applicability, applicability, is_explained
from theorems.run.findings import NamedFinding, as_json, findings
from theorems.run.registry.suite import statements
from theorems.run.tables import assumptions_table, print_case
from theorems.run.text_report import plain_text


@dataclass(frozen=True, eq=False)
class CustomExplanation:
    """Explanation of data that are not keys and scores, but of a kind that a paper defines.

    Attributes:
        name: the name of the data.
        case: the data.
        assumptions: for each assumption whether it holds, and why.
        statements: the statements about data of this kind, and whether they apply.
    """

    name: str
    case: Subject
    assumptions: tuple[NamedFinding, ...]
    statements: tuple[Applicability, ...]

    @property
    def is_decided(self) -> bool:
        """Return whether every assumption is decided."""
        return all(finding.holds is not None for finding in self.assumptions)

    @property
    def words(self) -> list[str]:
        """Return the paper's sentences on the data, the statements that apply, and the assumptions that others lack."""
        apply = [f"{theorem.id} ({theorem.title})" for theorem in self.statements if theorem.applies]
        lack = [
            f"{theorem.id} ({', '.join(finding.id for finding in theorem.missing)})"
            for theorem in self.statements
            if not theorem.applies
        ]
        sentences = [f"Applies: {', '.join(apply)}." if apply else "No statement applies."]
        sentences += (
            [f"Does not apply (in brackets the assumptions that fail or are not established): {', '.join(lack)}."]
            if lack
            else []
        )
        return [*self.case.explain(), *sentences]

    @property
    def heading(self) -> str:
        """Return the name, kind and sizes of the data in a line."""
        sizes = ", ".join(f"{name} = {size}" for name, size in self.case.sizes.items())
        return f"{self.name}: {self.case.noun}{sizes and f', {sizes}'}"

    def __repr__(self) -> str:
        """Return the heading."""
        return f"Explanation({self.heading})"

    def __str__(self) -> str:
        """Return the whole explanation as plain text, without trailing blanks."""
        return plain_text(self.write).strip()

    def _repr_html_(self) -> str:
        rows = [(finding.id, str(finding.holds), finding.evidence) for finding in self.assumptions]
        return "\n".join(
            [
                *(f"<p>{escape(line)}</p>" for line in (self.heading, *self.words)),
                html_table("Assumptions", ("assumption", "holds", "because"), rows),
            ]
        )

    def write(self, out: Console) -> None:
        """Print the explanation on a terminal."""
        out.print(self.heading)
        print_case(out, self.case)
        if self.assumptions:
            out.print(assumptions_table(self.assumptions))
        for paragraph in self.words:
            out.print(f"{paragraph}\n")

    def to_json(self) -> str:
        """Return the text that ``theorems explain --json`` writes."""
        record = {
            "version": version(),
            "data": self.name,
            **self.case.sizes,
            "assumptions": as_json(self.assumptions),
            "statements": [
                {"id": theorem.id, "applies": theorem.applies, "missing": [finding.id for finding in theorem.missing]}
                for theorem in self.statements
            ],
            "words": self.words,
        }
        return to_json(record, indent=2) + "\n"

    def plot(self, kind: str = "svg") -> bytes:
        """Refuse to draw data of a kind that a paper defines.

        Raises:
            InvalidInput: always.
        """
        raise InvalidInput(f"--plot: there is no drawing of {self.case.noun}; leave the option out.")


def custom_explanation_of(case: Subject, name: str) -> CustomExplanation:
    """Check the assumptions on the data and return their explanation."""
    chosen = [theorem for theorem in statements().values() if isinstance(case, theorem.about) and is_explained(theorem)]
    checked = tuple(findings(Given(case), chosen))
    return CustomExplanation(name, case, checked, tuple(applicability(theorem, "given", checked) for theorem in chosen))
