"""Catalogue of statements, assumptions and named datasets, and the check which assumptions hold on data."""

from __future__ import annotations

import inspect

from generators.assumptions import Assumption
from generators.datasets import all_data
from generators.finding import Finding
from theorems.core.statement import Statement
from theorems.library.arguments import Data, as_given, data_and_ids
from theorems.library.table_mapping import Table
from theorems.run.findings import findings
from theorems.run.registry import suite
from theorems.run.registry.lookup import select_statements
from theorems.run.tables import HOLDS


def statements() -> Table[Statement]:
    """Return every statement by id, paper by paper and in each paper's order.

    >>> from theorems import statements
    >>> statements()["theorem-2"].title
    'Global convergence of gradient descent'
    >>> statements()["theorem-2"].assumptions
    ('well-behaved-loss', 'equal-non-optimal-scores', 'separable')
    """
    columns = ("statement", "says", "source")
    return Table(
        "Statements", columns, suite.statements(), lambda id, statement: (id, statement.title, statement.source)
    )


def datasets() -> Table[str]:
    """Return the descriptions of the named datasets, by name.

    ``dataset_named("figure-1a")`` returns a dataset's data, and ``verify("figure-1a")`` checks statements on these
    data.

    >>> from theorems import datasets
    >>> datasets()["figure-1a"]
    'Figure 1(a): one input, the optimal token (−0.1, 1) and two others of equal score.'
    """
    summaries = {name: (inspect.getdoc(build) or "").partition("\n")[0] for name, build in all_data().items()}
    return Table("Datasets", ("dataset", "is"), summaries, lambda name, summary: (name, summary))


def assumptions(
    what: Data | None = None, /, *ids: str, data: Data | None = None, seed: int = 0
) -> Table[Assumption] | Table[Finding]:
    """Return which assumptions hold on data, with the number that decides; without data, return all assumptions.

    Args:
        what: the data, or the first of the ids, as for :func:`theorems.verify`.
        ids: ids of the statements whose assumptions are returned; all statements by default.
        data: the data, if they are not the first argument.
        seed: the seed of the data's random numbers, as for :func:`theorems.verify`.

    Returns:
        With data, a table of :class:`Finding` by the assumption's id; ``holds`` is True, False, or None if neither
        could be proven, and ``evidence`` gives the number that decides. Without data, a table of :class:`Assumption` by
        id.

    Raises:
        InvalidInput: an id is unknown, or the data cannot be used.

    >>> from theorems import Problem, assumptions
    >>> problem = Problem(keys=[[[1, 0], [0, 1], [0, 0]]], scores=[[1, 0.5, 0]])
    >>> assumptions(problem, "theorem-1")["strict-optimum"].evidence
    'smallest gap to the optimal token is 0.5, in input 0'
    >>> assumptions()["separable"].title
    'ATT-SVM of the chosen tokens is feasible'
    """
    source, all_ids = data_and_ids(what, ids, data)
    on_data = None if source is None else as_given(source, seed)
    chosen = select_statements(all_ids, subject=on_data.case if on_data else None)
    if on_data is not None:
        by_id = {
            finding.id: Finding(finding.holds, finding.evidence, finding.exact) for finding in findings(on_data, chosen)
        }
        columns = ("assumption", "", "because")
        return Table(
            "Assumptions on the data",
            columns,
            by_id,
            lambda id, finding: (id, HOLDS[finding.holds][0], finding.evidence),
        )
    assumed = suite.assumptions()
    if all_ids:
        assumed = {id: statement.assumption(id) for statement in chosen for id in statement.assumptions}
    return Table(
        "Assumptions",
        ("assumption", "says", "source"),
        assumed,
        lambda id, assumption: (id, assumption.title, assumption.source),
    )
