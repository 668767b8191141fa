"""Plant small faults in the sources, one at a time, and see whether a test fails; docs/mutants.md."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from reference_attention.errors import InvalidInput
from tests.mutants.facing import faced
from tests.mutants.known import keep, known
from tests.mutants.making import all_mutants, chosen
from tests.mutants.measuring import Bench, Reach, as_record, from_record
from tests.mutants.page import argued, page
from theorems.run.journal import Journal


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    add = parser.add_argument
    add("--resume", type=Path, required=True, metavar="FILE", help="the journal; begun if it is not there")
    add("--known", type=Path, metavar="FILE", help="outcomes to begin with, written back at the end")
    add("--part", default="reference_attention", help="what is mutated: a folder or a file")
    add("--only", nargs="+", default=[""], metavar="TEXT", help="only files with one of these in their path")
    add("--tests", nargs="+", help="what mutants face; tests/PART by default")
    add("--sample", type=float, default=1.0, help="a share of the mutants")
    add("--seed", type=int, default=0, help="of the share")
    add("--shard", type=shard, default=(1, 1), metavar="K/N", help="every N-th of them, from the K-th")
    add("--seconds", type=float, default=20.0, help="of processor time, for the tests that one mutant faces")
    add("--again", action="store_true", help="face what survived without a reason anew, after tests were added")
    add("--markdown", action="store_true", help="print what the journal holds, and face nothing")
    return parser.parse_args()


def shard(text: str) -> tuple[int, int]:
    """K and N of K/N."""
    found = re.fullmatch(r"([1-9]\d*)/([1-9]\d*)", text)
    if not found or int(found[1]) > int(found[2]):
        raise argparse.ArgumentTypeError(f"{text} is no K/N with 1 ≤ K ≤ N")
    return int(found[1]), int(found[2])


def main(given: argparse.Namespace) -> int:
    root, part = Path.cwd(), given.part.rstrip("/")
    sys.path.insert(0, str(root))
    every = list(all_mutants(root, part))
    mutants = chosen(iter(every), given.sample, given.seed)
    run = {"command": "mutants", "part": part, "sample": given.sample, "seed": given.seed}
    journal = Journal(given.resume, run)
    bench = Bench(root, part, given.tests or [f"tests/{part}"], given.seconds)
    bench.known = {found.test: found for found in map(from_record, journal.records)}
    outcomes = known(given.known, every) if given.known else {}
    outcomes |= {one.id: outcome for one in mutants if (outcome := journal.result_of(one)) is not None}
    if given.markdown:
        print(page(part, mutants, outcomes, given.sample), end="")
        return 0
    for outcome in outcomes.values():
        bench.remember(outcome)
    first, step = given.shard
    mine = [one for one in mutants[first - 1 :: step] if any(text in one.file for text in given.only)]
    reasons = argued()
    open_ = {one.id for one in mine if one.id in outcomes and outcomes[one.id].outcome == "survived"}
    open_ -= {one.id for one in mine if one.place in reasons}
    left = [one for one in mine if one.id not in outcomes or (given.again and one.id in open_)]
    print(f"{len(mine)} mutants, {len(left)} to face", flush=True)
    for told in faced(bench, left) if left else ():
        if isinstance(told, Reach):
            journal.append(as_record(told))
            continue
        mutant, outcome = told
        journal.finished(mutant, outcome)
        outcomes[mutant.id] = outcome
        if outcome.outcome == "survived":
            print(f"{outcome.file}:{outcome.line} survived {outcome.by}: {outcome.change}", flush=True)
    if given.known:
        keep(given.known, every, outcomes)
    ended = [outcomes[one.id].outcome for one in mine]
    print(f"killed {ended.count('killed')}, by time {ended.count('timeout')}, survived {ended.count('survived')}")
    return 0


if __name__ == "__main__":
    try:
        raise SystemExit(main(options()))
    except InvalidInput as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from None
