"""What there is: statements, assumptions, named datasets; and which assumptions hold on somebody's data."""

from __future__ import annotations

import inspect

from generators.assumptions import Assumption
from generators.datasets import all_data
from generators.finding import Finding
from theorems.core.statement import Statement
from theorems.library.arguments import Data, as_given, data_and_ids
from theorems.library.table import Table
from theorems.run.findings import findings
from theorems.run.registry import suite
from theorems.run.registry.lookup import select_statements
from theorems.run.tables import HOLDS


def statements() -> Table[Statement]:
    """Every statement by id, in the order of the paper.

    >>> from theorems import statements
    >>> statements()["theorem-2"].title
    'Global convergence of gradient descent'
    >>> statements()["theorem-2"].assumptions
    ('well-behaved-loss', 'equal-non-optimal-scores', 'separable')
    """
    columns = ("statement", "says", "source")
    return Table("Statements", columns, suite.statements(), lambda id, one: (id, one.title, one.source))


def datasets() -> Table[str]:
    """The named datasets and what they are; :func:`dataset_named` makes one, ``verify("figure-1a")`` checks it.

    >>> from theorems import datasets
    >>> datasets()["figure-1a"]
    'Figure 1(a): one input, the optimal token (−0.1, 1) and two others of equal score.'
    """
    held = {name: (inspect.getdoc(build) or "").partition("\n")[0] for name, build in all_data().items()}
    return Table("Datasets", ("dataset", "is"), held, lambda name, said: (name, said))


def assumptions(
    what: Data | None = None, /, *ids: str, data: Data | None = None, seed: int = 0
) -> Table[Assumption] | Table[Finding]:
    """Which assumptions hold on data, and the number that decides; without data, the assumptions and what they say.

    Args:
        what: data, or the first id, as for :func:`theorems.verify`.
        ids: statements, whose assumptions are asked for; all by default.
        data: the data, instead of as first argument.
        seed: as for :func:`theorems.verify`.

    Returns:
        With data a :class:`Finding` by id (``holds`` is True, False, or None where neither could be proven;
        ``evidence``, ``exact``), otherwise an :class:`Assumption` by id.

    Raises:
        InvalidInput: an unknown id, data that cannot be used.

    >>> from theorems import Problem, assumptions
    >>> problem = Problem(keys=[[[1, 0], [0, 1], [0, 0]]], scores=[[1, 0.5, 0]])
    >>> assumptions(problem, "theorem-1")["strict-optimum"].evidence
    'smallest gap to the optimal token is 0.5, in input 0'
    >>> assumptions()["separable"].title
    'ATT-SVM of the chosen tokens is feasible'
    """
    source, wanted = data_and_ids(what, ids, data)
    held = None if source is None else as_given(source, seed)
    chosen = select_statements(wanted, subject=held.case if held else None)
    if held is not None:
        found = {one.id: Finding(one.holds, one.evidence, one.exact) for one in findings(held, chosen)}
        columns = ("assumption", "", "because")
        return Table("Assumptions on the data", columns, found, lambda id, one: (id, HOLDS[one.holds][0], one.evidence))
    made = suite.assumptions()
    if wanted:
        made = {id: statement.assumption(id) for statement in chosen for id in statement.assumptions}
    return Table("Assumptions", ("assumption", "says", "source"), made, lambda id, one: (id, one.title, one.source))
