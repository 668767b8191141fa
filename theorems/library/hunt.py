"""The function ``hunt``, and its result: a counterexample, or the number of cases tried in vain."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from generators.case import Case
from generators.finding import Finding
from generators.subject import Subject
from reference_attention.errors import InvalidInput
from reference_attention.html_table import html_table
from reference_attention.problem import Problem
from theorems.core.check import sentence
from theorems.core.claim import Claim
from theorems.counterexamples.check import CaseCheck, in_own_units
from theorems.counterexamples.record import as_effort, as_record, save
from theorems.counterexamples.search import Effort, Hunt
from theorems.counterexamples.weakened_statements import weakened_named
from theorems.run.tables import HOLDS
from theorems.without.weakening import Weakened


@dataclass(frozen=True, eq=False, repr=False)
class Hunted:
    """Result of a hunt for a counterexample to a statement without one of its assumptions.

    Attributes:
        weakened: the statement without the assumption; it has the sentence to be refuted and the reason why this
            sentence is false.
        seed: the seed of the hunt; equal seeds give equal counterexamples.
        effort: the numbers of cases tried, decided and undecided, and the largest violation of the statement.
        case: the shrunk counterexample; None if none was found.
        examined: the claims checked on the counterexample, and for every assumption whether the counterexample
            satisfies it.
    """

    weakened: Weakened
    seed: int
    effort: Effort
    case: Subject | None
    examined: CaseCheck | None

    @classmethod
    def by(cls, hunt: Hunt) -> Hunted:
        """Return the result of a finished hunt; numbers about a counterexample are in the units of its data."""
        examined = None
        if hunt.found is not None and hunt.examined is not None:
            examined = in_own_units(hunt.weakened, hunt.found, hunt.examined)
        return cls(hunt.weakened, hunt.seed, hunt.effort, hunt.found, examined)

    @property
    def has_counterexample(self) -> bool:
        """Return whether a counterexample was found; False proves nothing about the statement."""
        return self.case is not None

    @property
    def problem(self) -> Problem | None:
        """Return keys, scores and loss of the counterexample; None without one, or if its data are of another kind."""
        return self.case.problem if isinstance(self.case, Case) else None

    @property
    def claim(self) -> Claim | None:
        """Return the claim that the counterexample violates; None without a counterexample."""
        return None if self.examined is None else self.examined.violated

    @property
    def findings(self) -> dict[str, Finding]:
        """Return the findings on the counterexample by assumption: all assumptions hold except the omitted one."""
        if self.examined is None:
            return {}
        left_out = {self.weakened.without: self.examined.dropped} if self.weakened.without else {}
        return dict(self.examined.kept) | left_out

    def record(self) -> str:
        """Return the text of the file that ``theorems hunt`` writes; ``theorems replay`` reads counterexamples back."""
        if self.case is None or self.examined is None:
            return as_effort(self.weakened, self.effort, self.seed)
        return as_record(self.weakened, self.case, self.examined, self.seed)

    def save(self, directory: str | Path) -> Path:
        """Write the text of :meth:`record` to a file in a folder, named by its content, and return the path.

        Raises:
            InvalidInput: the folder cannot be written.
        """
        return save(self.weakened, self.record(), Path(directory))

    def __repr__(self) -> str:
        """Return a summary: the statement, the omitted assumption, the claim that fails, and the case's sizes."""
        if self.case is None or self.claim is None:
            return f"Hunted({self.weakened.title}: nothing found in {self.effort.tried} cases)"
        sizes = ", ".join(f"{name} = {size}" for name, size in self.case.sizes.items())
        return f"Hunted({self.weakened.title}: refuted, {self.claim.name} fails{sizes and f' at {sizes}'})"

    def _repr_html_(self) -> str:
        rows = [("says", self.weakened.refutes)]
        if self.case is None or self.claim is None:
            rows.append(("tried", f"{self.effort.tried} cases, {self.effort.undecided} undecided; this is not a proof"))
            return html_table(f"{self.weakened.title}: nothing found", ("", ""), rows)
        rows += [("violated", sentence(self.claim)), ("why", " ".join(self.weakened.why.split()))]
        rows += [(id, f"{HOLDS[finding.holds][0]}: {finding.evidence}") for id, finding in self.findings.items()]
        if self.problem is None:
            rows += [("case", line) for line in self.case.lines()]
        else:
            rows += [("keys", str(self.problem.keys.tolist())), ("scores", str(self.problem.scores.tolist()))]
        return html_table(f"{self.weakened.title}: refuted", ("", ""), rows)


def hunt(id: str, without: str = "", *, seconds: float | int = 60, seed: int = 0, cases: int | None = None) -> Hunted:
    """Hunt for data on which a statement fails once one of its assumptions is dropped.

    On a counterexample all other assumptions hold exactly, and the statement is violated by far more than rounding
    errors; limits are followed until the norm of the prompt is 10⁶. A counterexample is shrunk to few and round
    numbers.

    Args:
        id: the id of a statement, or path.py:name for a statement in your file.
        without: the id of the assumption to leave out; empty to search for counterexamples to the unchanged statement.
        seconds: the time limit of the search.
        seed: the seed of the hunt; equal seeds give equal counterexamples.
        cases: the largest number of cases to try; unlike ``seconds``, it gives reproducible results.

    Raises:
        InvalidInput: the statement is unknown, does not make the assumption, or a limit is not positive.

    >>> from theorems import hunt
    >>> hunted = hunt("lemma-11", without="strict-optimum", cases=50)
    >>> hunted
    Hunted(lemma-11 without strict-optimum: refuted, gmm-exists fails at n = 1, T = 2, d = 1)
    >>> hunted.has_counterexample, hunted.problem.scores, hunted.findings["strict-optimum"].holds
    (True, array([[0., 0.]]), False)
    """
    if not seconds > 0 or (cases is not None and cases < 1):
        raise InvalidInput("seconds: the limits of a hunt, seconds and cases, must be positive.")
    running = Hunt(weakened_named(id, without), seed, float(seconds), cases=cases)
    running.run()
    return Hunted.by(running)
