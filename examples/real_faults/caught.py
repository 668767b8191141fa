"""What catches each fault of this folder, and in how many cases, beside what a common test says of it.

python -m examples.real_faults.caught [--examples 50] [--seed 0] [--dtype float64 …] > table.md
"""

from __future__ import annotations

import argparse
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from examples.real_faults.attention import tiled, tiled_sdpa
from examples.real_faults.common_practice import failures
from examples.real_faults.gallery import GALLERY
from theorems.core.check import check
from theorems.core.claim import Verdict
from theorems.core.on_kernel import out_of_reach
from theorems.kernel.loading import kernel_of
from theorems.run.registry.suite import capabilities
from theorems.run.verify import draw_cases

DTYPES = ("float64", "float32", "bfloat16", "float16")
PRACTICE = ("float32", "bfloat16")
"""In which the common test is made."""


def count_caught(kernel: Callable[..., Any], dtype: str, examples: int, seed: int) -> Counter[tuple[str, str]]:
    """In how many cases each claim of each capability is falsified."""
    under_test = kernel_of(kernel, dtype).as_implementation()
    found: Counter[tuple[str, str]] = Counter()
    for id, one in capabilities().items():
        if out_of_reach(one.kernel, under_test):
            continue
        for case in draw_cases(one, examples, seed):
            claims = check(one, case, under_test).claims
            # In the order in which they are made: of several that as many cases break the first is told.
            found.update(list(dict.fromkeys((id, c.name) for c in claims if c.verdict is Verdict.FALSIFIED)))
    return found


def rows(dtypes: Sequence[str], examples: int, seed: int) -> Iterator[tuple[str, ...]]:
    """Fault, thread, the claim that most cases break, the share of cases by dtype, and what a common test says."""
    right = (("tiled (right)", "", tiled), ("tiled_sdpa (right)", "", tiled_sdpa))
    for name, thread, kernel in (*right, *((one.name, one.thread, one.kernel) for one in GALLERY)):
        found = [count_caught(kernel, dtype, examples, seed) for dtype in dtypes]
        (best, _), *_ = found[0].most_common(1) or [(("", ""), 0)]
        shares = [_share(one, best, examples) for one in found]
        said = [failures(kernel, getattr(torch, dtype)) for dtype in PRACTICE]
        yield name, thread, f"`{best[0]}`: {best[1]}" if best[0] else "", *shares, *map(_describe, said)


def _share(found: Counter[tuple[str, str]], best: tuple[str, str], examples: int) -> str:
    """Of the claim that most cases break in the first dtype; otherwise of another."""
    if not found:
        return "–"
    claim = best if found[best] else found.most_common(1)[0][0]
    other = "" if claim == best else f" (`{claim[0]}`)"
    return f"{found[claim]}/{examples}{other}"


def _describe(options: Sequence[str]) -> str:
    return "fails: " + ", ".join(option or "plain" for option in options) if options else "passes"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--examples", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dtype", nargs="+", choices=DTYPES, default=DTYPES)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    head = ("fault", "thread", "claim", *given.dtype, *(f"atol 1e-2, {dtype}" for dtype in PRACTICE))
    for row in (head, ["---"] * len(head)):
        print("| " + " | ".join(row) + " |", flush=True)
    for row in rows(given.dtype, given.examples, given.seed):
        print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
