"""Comparison of a run's iterations with those in the JSON of an earlier run, for ``--compare``.

Unlike times, numbers of iterations do not depend on the machine, so that every difference counts: the row of a rule on
a data set is *worse* if some level of 1 − cos takes more iterations than in the earlier run, *better* if none takes
more and some level takes fewer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from reference_attention.errors import InvalidInput
from reference_attention.files import read_named_values


class Verdict(StrEnum):
    """The change of a rule's numbers of iterations on a data set since the earlier run."""

    SAME = "same"
    BETTER = "better"
    WORSE = "worse"
    NEW = "new"
    NOT_RUN = "not run now"


Cells = Mapping[str, int | None]
"""Numbers of iterations or of problems, by a name such as the level's; ``None`` (not reached) exceeds every number."""
GENERATED = "generated"


@dataclass(frozen=True)
class Row:
    """The change since the earlier run for one rule on one data set.

    Attributes:
        data: the name of the data; ``generated`` for all generated problems together.
        rule: the name of the rule.
        verdict: whether the numbers of iterations became better or worse.
        changes: for each number that changed, its name with the earlier and the present value, as text.
    """

    data: str
    rule: str
    verdict: Verdict
    changes: str = ""


def earlier(path: Path) -> dict[str, Any]:
    """Read the JSON of an earlier run of ``theorems bench``.

    Raises:
        InvalidInput: the file does not exist, or was not written by ``theorems bench --json``.
    """
    if path.suffix != ".json":
        raise InvalidInput(
            f"--compare: {path} does not end in .json; give a file that theorems bench --json has written."
        )
    try:
        report = read_named_values(path)
    except InvalidInput as error:
        raise InvalidInput(f"--compare: {error}") from None
    try:
        rows_of(report)
        _ = report["steps"], report["seed"], report["examples"]
    except (KeyError, TypeError, AttributeError, ValueError):
        raise InvalidInput(
            f"--compare: {path} was not written by theorems bench --json; write it with that command first."
        ) from None
    return report


def check_comparable(then: Mapping[str, Any], now: Mapping[str, Any], path: Path) -> None:
    """Check that the earlier run had the same options and data as this one.

    Args:
        then: the JSON of the earlier run.
        now: ``steps``, ``seed`` and ``examples`` of this run, and ``contents`` of its data by name.
        path: the file of the earlier run, for the message.

    Raises:
        InvalidInput: the numbers of iterations, the generated problems, or data of the same name differ.
    """
    options = ["steps"] + ["seed", "examples"] * bool(then["examples"] and now["examples"])
    for option in options:
        if then[option] != now[option]:
            raise InvalidInput(
                f"--compare: {path} was written with --{option} {then[option]}, not {now[option]}; give the same value."
            )
    for data in then["data"]:
        content, digest = data.get("content"), now["contents"].get(data["name"])
        if content and digest and content != digest:
            raise InvalidInput(
                f"--compare: {path} has other data called {data['name']}; compare runs on the same data."
            )


def rows_of(report: Mapping[str, Any]) -> dict[tuple[str, str], dict[str, int | None]]:
    """Return the numbers of iterations in a run's JSON, by name, for each pair of data and rule.

    For a data set the numbers are the iterations to each level of 1 − cos; for the generated problems, the quartiles
    of the iterations to each level, and how many of the problems do not reach the level.

    Raises:
        KeyError, TypeError, ValueError: ``report`` does not have the form of the JSON of ``theorems bench``.
    """
    rows: dict[tuple[str, str], dict[str, int | None]] = {}
    for data in report["data"]:
        for run in data.get("rules", ()):
            rows[data["name"], run["rule"]] = {level: _count(n) for level, n in run["iterations"].items()}
    for summary in report["generated"]["summary"]:
        cells = rows[GENERATED, summary["rule"]] = {}
        for level, quartiles in summary["quartiles"].items():
            names = ("lower quartile", "median", "upper quartile")
            cells |= {f"{name} at {level}": _count(n) for name, n in zip(names, quartiles, strict=True)}
        cells |= {f"not within at {level}": _count(n) for level, n in summary["not_within"].items()}
    return rows


def _count(value: Any) -> int | None:
    if value is not None and (type(value) is not int or value < 0):
        raise ValueError(f"{value!r} is no count")
    return value


def comparison_rows(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[Row]:
    """Return a row for each rule on each data set in the JSON of either run; rows of the present run come first."""
    before, after = rows_of(then), rows_of(now)
    rows = [_row(*key, before[key], cells) if key in before else Row(*key, Verdict.NEW) for key, cells in after.items()]
    return rows + [Row(*key, Verdict.NOT_RUN) for key in before if key not in after]


def _row(data: str, rule: str, then: Cells, now: Cells) -> Row:
    common = [name for name in now if name in then]
    more, fewer = ([name for name in common if _more(*pair(name))] for pair in _pairs(then, now))
    verdict = Verdict.WORSE if more else Verdict.BETTER if fewer else Verdict.SAME
    changes = (
        f"{name}: {_count_text(then[name])} → {_count_text(now[name])}" for name in common if name in {*more, *fewer}
    )
    return Row(data, rule, verdict, "; ".join(changes))


def _pairs(then: Cells, now: Cells) -> Sequence[Any]:
    return (lambda name: (now[name], then[name])), (lambda name: (then[name], now[name]))


def _more(a: int | None, b: int | None) -> bool:
    """Return whether the number a is larger than the number b; ``None`` (not reached) is larger than any number."""
    return b is not None and (a is None or a > b)


def _count_text(count: int | None) -> str:
    return "-" if count is None else str(count)
