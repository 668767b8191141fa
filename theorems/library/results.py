"""Results of a verification, one per statement, for programs, tests, notebooks and files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from generators.user_data import subject_of
from reference_attention.files import from_json, to_json
from reference_attention.html_table import html_table
from theorems.core.claim import WORST_FIRST, Verdict
from theorems.core.exit_code import Exit
from theorems.core.exit_rule import exit_of
from theorems.core.under_test import KernelDescription
from theorems.core.version import version
from theorems.run.description import Description
from theorems.run.findings import NamedFinding
from theorems.run.findings import as_json as findings_json
from theorems.run.kernel_suite import kernel_suite
from theorems.run.result import ClaimSummary, Result
from theorems.run.text_report import text_report

SCHEMA = 1
"""Version of ``verify.schema.json``; it increases when a field of the JSON changes its meaning or is removed."""
LISTED = 4
"""Largest number of statements with the same verdict that ``repr`` lists by id; if there are more, it gives only their
number."""


@dataclass(frozen=True, eq=False, repr=False)
class Results:
    """Results of statements, in the order of the request; ``results["theorem-2"]`` and ``results[0]`` give one of them.

    Attributes:
        results: the results: id, title, verdict, reason, counts and claims of each statement.
        examples: the number of generated cases per statement.
        seed: the seed of the run; equal seeds give equal results.
        data: the name of the data; None for generated cases.
        about: the description of the run: the implementation under test, and which assumptions hold on the data.
        hints: possible reasons why the kernel was falsified; else empty.
        known_failures: by id of a statement known to be falsified, the reason why it is.

    >>> from theorems import verify
    >>> results = verify("lemma-11", examples=5)
    >>> [(result.id, str(result.verdict), result.examples) for result in results]
    [('lemma-11', 'upheld', 5)]
    >>> results.claims["lemma-11", "solution-is-feasible"].form
    <Form.EXACT: 'exact'>
    >>> results.raise_if_falsified()
    Results(upheld: lemma-11)
    """

    results: tuple[Result, ...]
    examples: int = 0
    seed: int = 0
    data: str | None = None
    about: Description = field(default_factory=Description)
    hints: tuple[str, ...] = ()
    known_failures: Mapping[str, str] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Result]:
        """Iterate over the results, in the order of the request."""
        return iter(self.results)

    def __len__(self) -> int:
        """Return the number of results."""
        return len(self.results)

    def __getitem__(self, key: int | str) -> Result:
        """Return the result at a position, or the result of the statement with an id."""
        if isinstance(key, int):
            return self.results[key]
        for result in self.results:
            if result.id == key:
                return result
        raise KeyError(key)

    @property
    def findings(self) -> tuple[NamedFinding, ...]:
        """Return the findings whether each assumption holds on the data; none for generated cases."""
        return self.about.findings

    @property
    def kernel(self) -> KernelDescription | None:
        """Return the description of the attention kernel under test; None for the reference."""
        return self.about.kernel

    @property
    def verdict(self) -> Verdict:
        """Return the first of falsified, inconclusive, upheld and not-applicable that is the verdict on some statement.

        Only ``upheld`` is a pass; ``not-applicable`` means that nothing was checked.
        """
        verdicts = {result.verdict for result in self.results}
        return next((verdict for verdict in WORST_FIRST if verdict in verdicts), Verdict.NOT_APPLICABLE)

    @property
    def exit_code(self) -> Exit:
        """Return the exit code of ``theorems verify``: 0 upheld, 1 falsified, 2 unusable data, 3 otherwise."""
        if not self.falsified_results and any(result.bad_input for result in self.results):
            return Exit.BAD_INPUT
        return exit_of(result.verdict for result in self.results)

    @property
    def falsified_results(self) -> tuple[Result, ...]:
        """Return the results of the statements that were falsified."""
        return tuple(result for result in self.results if result.verdict is Verdict.FALSIFIED)

    @cached_property
    def claims(self) -> dict[tuple[str, str], ClaimSummary]:
        """Return a summary of each claim (form, verdict, worst slack, tolerance), by (statement id, claim's name)."""
        return {(result.id, claim.name): claim for result in self.results for claim in result.claims}

    def case(self, id: str) -> Any:
        """Return the smallest case on which the statement failed or could not be decided; None if there is none.

        The case is a :class:`Case`, or a call of a kernel if the statement is a capability of kernels.
        """
        failure = self[id].failure
        return None if failure is None else subject_of(from_json(failure.case), name=f"failing {id}")

    def to_json(self) -> str:
        """Return the results as the JSON text that ``theorems verify --json`` writes.

        The file ``verify.schema.json``, beside this module, describes the text. The text is strict JSON: a number that
        was never computed is null, an infinite number is a string.
        """
        report: dict[str, Any] = {
            "schema": SCHEMA,
            "version": version(),
            "seed": self.seed,
            "examples": self.examples,
            "data": self.data,
            "implementation": self.about.implementation,
            "statements": [result.as_json() for result in self.results],
        }
        if self.data is not None:
            report["assumptions"] = findings_json(self.findings)
        if self.kernel is not None:
            report["kernel"] = {**self.kernel.json, **kernel_suite().report_json(self.results)}
            report["statements"] = [result.as_json() | {"touched": list(result.touched)} for result in self.results]
        for statement in report["statements"]:
            if statement["id"] in self.known_failures:
                statement["known_failure"] = self.known_failures[statement["id"]]
        return to_json(report, indent=2) + "\n"

    def raise_if_falsified(self) -> Results:
        """Return these results if no statement is falsified; otherwise raise.

        Raises:
            AssertionError: a statement is falsified; the message has a table, the failing case and how to reproduce it.
        """
        __tracebackhide__ = True
        if self.falsified_results:
            raise AssertionError(str(self))
        return self

    def raise_unless_upheld(self) -> Results:
        """Return these results if the verdict is upheld; otherwise raise, also if a statement is inconclusive.

        Raises:
            AssertionError: the verdict is not upheld; the message has a table, the reasons and the failing cases.
        """
        __tracebackhide__ = True
        if self.verdict is not Verdict.UPHELD:
            raise AssertionError(str(self))
        return self

    def __repr__(self) -> str:
        """Return the ids with each verdict, worst verdict first; a long list is replaced by its length."""
        parts = []
        for verdict in WORST_FIRST:
            ids = [result.id for result in self.results if result.verdict is verdict]
            if ids:
                parts.append(f"{verdict}: {', '.join(ids) if len(ids) <= LISTED else f'{len(ids)} statements'}")
        return f"Results({'; '.join(parts)})"

    def __str__(self) -> str:
        """Return the text that the command prints: the table, the reasons and the failing cases."""
        if self.kernel is None:
            return text_report(self.results, again=self._again)
        results = [result for result in self.results if result.was_tried]
        before = self.kernel.headline
        return text_report(self.results, results_in_table=results, before=before, after=self.hints, again=self._again)

    def _again(self, result: Result) -> str:
        options = "" if self.data is not None else f", examples={self.examples}, seed={self.seed}"
        if self.kernel is not None:
            options += f", attention=…, dtype={self.kernel.dtype!r}"
        data = "" if self.data is None else ", data=…"
        return f"Reproduce with: verify({result.id!r}{data}{options}); the case is results.case({result.id!r})"

    def _repr_html_(self) -> str:
        columns = ("statement", "says", "verdict", "examples", "worst slack", "because")
        rows = [
            (
                result.id,
                result.title,
                result.verdict_in_words,
                str(result.examples),
                result.tightest.nearness if result.tightest else "",
                result.complaint,
            )
            for result in self.results
        ]
        return html_table(f"{self.verdict}: {len(rows)} statement{'' if len(rows) == 1 else 's'}", columns, rows)
