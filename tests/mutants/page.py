"""What is known of mutants, as a document: a table by file, and every one that survives with its reason."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.making import Mutant, Outcome

ARGUED = Path(__file__).with_name("argued.toml")
KINDS = ("equivalent", "speed", "choice", "message")

INTRODUCTION = """# Mutants

Small faults, planted one at a time in the sources: a symbol exchanged, a number one larger or smaller, a condition
negated, a loop that is never entered. Text, annotations and what an error says are left alone. Each mutant faces the
tests that reach its function, in a forked process, until one fails:

```console
$ python -m tests.mutants --resume mutants.jsonl                           # reference_attention; an hour or two
$ python -m tests.mutants --resume mutants.jsonl --only joint_path         # files with this in their path
$ python -m tests.mutants --resume second.jsonl --shard 2/4                # a quarter, with a journal of its own
$ python -m tests.mutants --resume tenth.jsonl --part theorems --sample 0.1 --seed 0
$ python -m tests.mutants --resume mutants.jsonl --again                   # survivors, after tests were added
$ python -m tests.mutants --resume mutants.jsonl --again --tests tests/generators tests/theorems/rounding --seconds 60
$ python -m tests.mutants --resume mutants.jsonl --known tests/mutants/known.json     # only what was changed
```

`docs/mutants.md` was printed by two commands:

```console
$ python -m tests.mutants --resume mutants.jsonl --known tests/mutants/known.json --markdown
$ python -m tests.mutants --resume tenth.jsonl --known tests/mutants/known.json --part theorems --sample 0.1 --markdown
```

`--resume` names a [journal](long_runs.md): a line for every test that was measured and every mutant that was faced, and
what is in it is not done again. `--known` names a file of outcomes to begin with, which is written back at the end: a
letter for each mutant of a function, that holds until the function is changed. Without `--tests` they are those of the
part; `--seconds` is the processor time of the tests that one mutant may face (20). Shapes are not checked at run time
here, so that a test has to see a wrong one. A test that takes five times as long as it should, and more than two
seconds, counts as failed: *by time* below. A mutant that no test within those seconds reaches is not faced. For the
tenth of `theorems` they were two to ten, without tests that start processes but for what the kernel room emits: what is
open there may fall to a longer test.
"""

TOGETHER = """
A survivor is *equivalent* (no result differs), changes only the *speed* or a *message*, or is a *choice*: a number near
which anything serves, or where a search begins, so that a test would only repeat it. *Open*: nobody has said.
"""


@dataclass(frozen=True)
class Argued:
    """Why a mutant may survive.

    Attributes:
        kind: one of :data:`KINDS`.
        why: in a sentence.
    """

    kind: str
    why: str


def argued(path: Path = ARGUED) -> dict[tuple[str, str, str], Argued]:
    """The reasons, by file, function and change."""
    found = {}
    for one in tomllib.loads(path.read_text(encoding="utf-8"))["survivor"]:
        file, function = one["at"].split()
        assert one["kind"] in KINDS, one
        for change in one["changes"]:
            found[file, function, change] = Argued(one["kind"], one["why"])
    return found


def page(part: str, mutants: Sequence[Mutant], outcomes: Mapping[str, Outcome], sample: float = 1.0) -> str:
    """The document; of a sample a section of it, with a row for each folder.

    Args:
        part: what was mutated.
        mutants: all that were to be faced.
        outcomes: of those that were, by id.
        sample: their share.
    """
    reasons, whole = argued(), sample >= 1
    rows = [("file" if whole else "folder", "mutants", "faced", "killed", "by time", *KINDS, "open")]
    left: list[tuple[str, ...]] = []
    totals = [0] * (len(rows[0]) - 1)
    for file in dict.fromkeys(one.file if whole else str(Path(one.file).parent) for one in mutants):
        own = [one for one in mutants if file in (one.file, str(Path(one.file).parent))]
        faced = [(one, outcomes[one.id]) for one in own if one.id in outcomes]
        ended = [outcome.outcome for _, outcome in faced]
        survivors = [(one, reasons.get(one.place)) for one, x in faced if x.outcome == "survived"]
        kinds = ["open" if reason is None else reason.kind for _, reason in survivors]
        numbers = [len(own), len(faced), ended.count("killed"), ended.count("timeout")]
        numbers += [kinds.count(kind) for kind in (*KINDS, "open")]
        totals = [a + b for a, b in zip(totals, numbers, strict=True)]
        rows.append((f"`{file}`", *map(str, numbers)))
        for one, reason in survivors:
            said = ("open", f"survived {outcomes[one.id].by}".strip()) if reason is None else (reason.kind, reason.why)
            left.append((one.file, one.function, one.change, *said))
    rows.append(("together", *map(str, totals)))
    said = f"{totals[1]} of {totals[0]} mutants were faced; {totals[2] + totals[3]} were killed, {len(left)} survived"
    name = f"`{part}`" if whole else f"{'A tenth' if sample == 0.1 else f'{sample:.2%}'} of `{part}`"
    head = f"\n## {name}\n\n{said}, of which {totals[-1]} are open.\n"
    return (
        (INTRODUCTION + head + TOGETHER if whole else head)
        + "\n"
        + "\n".join(_table(rows))
        + "\n"
        + "\n".join(_survivors(left))
    )


def _table(rows: Iterable[Sequence[str]]) -> list[str]:
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return [lines[0], "| --- " * lines[0].count(" | ") + "| --- |", *lines[1:]]


def _survivors(left: Sequence[tuple[str, ...]]) -> list[str]:
    """By file and reason: several changes with one reason stand in one list."""
    lines = []
    for file in dict.fromkeys(one[0] for one in left):
        lines += ["", f"### `{file}`", ""]
        groups: dict[tuple[str, str, str], list[str]] = {}
        for _, function, change, kind, why in (one for one in left if one[0] == file):
            groups.setdefault((function, kind, why), []).append(change)
        for (function, kind, why), changes in groups.items():
            lines.append(f"- `{function}`, {kind}: {why}")
            lines += [f"  - `` {change} ``" for change in changes]
    return [*lines, ""]
