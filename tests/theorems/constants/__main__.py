"""Measure how much each constant can be weakened before its statement fails; ``--write`` stores the cases."""

from __future__ import annotations

import argparse
import sys

from tests.theorems.constants.measuring import Witness, constants_of, ids, keep, measure, stored_witnesses


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.theorems.constants", description=__doc__)
    parser.add_argument("ids", nargs="*", metavar="ID", help="all by default")
    parser.add_argument("--examples", type=int, default=20, help="drawn cases of each statement")
    parser.add_argument("--write", action="store_true", help="keep what is found")
    given = parser.parse_args()
    unseen = 0
    for id in given.ids or ids():
        witnesses: dict[str, Witness | None] = {}
        for constant in constants_of(id):
            witnesses[constant.key] = witness = measure(constant, id, given.examples)
            message = "unseen" if witness is None else f"{witness.share:.3g}, {witness.claim}, {witness.place}"
            print(f"{id}: {constant.key}: {message}", flush=True)
            unseen += witness is None and not constant.unseen
        if given.write:
            keep(id, stored_witnesses(id) | witnesses)
    return int(unseen > 0)


if __name__ == "__main__":
    sys.exit(main())
