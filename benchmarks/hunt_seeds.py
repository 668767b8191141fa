"""Program that repeats a hunt with many seeds: ``python benchmarks/hunt_seeds.py theorem-2 single-input 40``.

For each seed the program prints the size (n, T, d) of the counterexample, whether all numbers in it are integers or
halves, the number of cases tried, and the seconds. At the end it prints the longest time.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from theorems.counterexamples.search import Hunt
from theorems.counterexamples.weakened_statements import weakened_named


def main(id: str, without: str, seeds: int) -> None:
    """Hunt with the seeds 0, 1, …, ``seeds`` − 1 for counterexamples to statement ``id`` without one assumption."""
    slowest, entry = 0.0, weakened_named(id, without)
    for seed in range(seeds):
        began = time.perf_counter()
        hunt = Hunt(entry, seed, 300.0)
        hunt.run()
        seconds = time.perf_counter() - began
        slowest = max(slowest, seconds)
        if hunt.found is None:
            print(f"seed {seed:3}: none found in {hunt.effort.tried} cases, {seconds:.1f} s", flush=True)
            continue
        problem, start = hunt.found.problem, hunt.found.start
        numbers = np.concatenate([problem.keys.ravel(), problem.scores.ravel(), [] if start is None else start])
        halves = "integers or halves" if np.array_equal(2 * numbers, np.rint(2 * numbers)) else "other numbers"
        effort = f"{hunt.effort.tried} + {hunt.effort.shrinking} cases"
        print(f"seed {seed:3}: {problem.keys.shape}, {halves}, {effort}, {seconds:.1f} s", flush=True)
    print(f"slowest of {seeds}: {slowest:.1f} s")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
