"""Count the instructions of the hot loops and compare them with the stored counts; see docs/profile.md."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict

from tests.instructions.baseline import PYTHON, Unsaid, changes, read, updated, write
from tests.instructions.counting import Cost, cost
from tests.instructions.workloads import WORKLOADS, made


def counted(name: str) -> Cost:
    with made(name) as work:
        return cost(work)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.instructions", description=__doc__)
    add = parser.add_argument
    add("--write", action="store_true", help="keep what is more than 5 %% off, and what is new")
    add("--why", default="", metavar="TEXT", help="why something costs more; kept beside its count")
    add("--json", action="store_true", help="print the counts alone")
    given = parser.parse_args()
    now = {name: counted(name) for name in WORKLOADS}
    if given.json:
        print(json.dumps({name: asdict(current) for name, current in now.items()}))
        return 0
    kept = read()
    off = {name: changes(kept[name].cost, current) for name, current in now.items() if name in kept}
    print(f"| Python {PYTHON} | instructions | bytes of arrays | off the kept counts |\n|---|---|---|---|")
    for name, current in now.items():
        message = ", ".join(f"{what} {share:+.1%}" for what, share in off[name].items()) if name in off else "new"
        print(f"| {name} | {current.instructions:,} | {current.bytes:,} | {message} |")
    if not given.write:
        return int(any(off.values()))
    try:
        write(updated(kept, now, given.why))
    except Unsaid as unsaid:
        print(f"{unsaid} costs more: say why, with --why.", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
