"""Print the slack and tolerance of each claim on the stored cases; ``--write`` stores them."""

from __future__ import annotations

import argparse
import sys

from tests.theorems.strength.claims import changes, ids, keep, stored_cases


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.theorems.strength", description=__doc__)
    parser.add_argument("ids", nargs="*", metavar="ID", help="all by default")
    parser.add_argument("--write", action="store_true", help="keep what is claimed now, on the same cases")
    parser.add_argument("--anew", action="store_true", help="and draw cases anew")
    given = parser.parse_args()
    count = 0
    for id in given.ids or ids():
        for line in changes(id):
            print(f"{id}: {line}")
            count += 1
        if given.write:
            keep(id, [] if given.anew else [before.case for before in stored_cases(id)])
    return int(count > 0 and not given.write)


if __name__ == "__main__":
    sys.exit(main())
