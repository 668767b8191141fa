"""Program that prints, for each fault of the tiled kernel, the claim that catches it and the result of a common test.

python -m examples.real_faults.detection [--examples 24] [--seed 0] [--dtype float64 …] > table.md
"""

from __future__ import annotations

import argparse
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from attention_conformance.claims.capabilities import capability_of
from attention_conformance.claims.trials import trials_of
from attention_conformance.kernel.kernel_loader import kernel_of
from examples.real_faults.attention import tiled, tiled_sdpa
from examples.real_faults.common_test import failures
from examples.real_faults.gallery import TILED_FAULTS
from theorems.core.claim import Verdict
from theorems.run.registry.suite import capabilities

Claimed = tuple[str, str]
"""The id of a capability, and the name of one of the capability's claims."""
DTYPES = ("float64", "float32", "bfloat16", "float16")
PRACTICE = ("float32", "bfloat16")
"""The dtypes in which the test of :mod:`examples.real_faults.common_test` runs."""


def count_caught(kernel: Callable[..., Any], dtype: str, examples: int, seed: int) -> dict[Claimed, tuple[int, int]]:
    """Return, for each claim that some call falsifies, how many calls falsify it and how many were tried for it."""
    under_test = kernel_of(kernel, dtype).as_implementation()
    trials = trials_of(under_test, examples, seed)
    counts: dict[Claimed, tuple[int, int]] = {}
    for id, statement in capabilities().items():
        if under_test.out_of_reach(statement.kernel):
            continue
        capability = capability_of(statement.id)
        trials_of_capability = [trial for _, trial in trials.about(capability, examples)]
        wrong = Counter(
            name
            for trial in trials_of_capability
            for name in dict.fromkeys(
                claim.name
                for about, claim in trial.claims
                if claim.verdict is Verdict.FALSIFIED and capability.has(trial.call, about, claim.name)
            )
        )
        counts |= {(id, name): (count, len(trials_of_capability)) for name, count in wrong.items()}
    return counts


def rows(dtypes: Sequence[str], examples: int, seed: int) -> Iterator[tuple[str, ...]]:
    """Yield the rows of the table.

    A row has the fault, the issue that reported it, the claim that is falsified most often, for each dtype the share
    of calls that falsify this claim, and the results of the common test.
    """
    right = (("tiled (right)", "", tiled), ("tiled_sdpa (right)", "", tiled_sdpa))
    for name, thread, kernel in (*right, *((fault.name, fault.thread, fault.kernel) for fault in TILED_FAULTS)):
        counts = [count_caught(kernel, dtype, examples, seed) for dtype in dtypes]
        best = _most_broken(counts[0])
        shares = [_share(of_dtype, best) for of_dtype in counts]
        failing = [failures(kernel, getattr(torch, dtype)) for dtype in PRACTICE]
        yield name, thread, f"`{best[0]}`: {best[1]}" if best else "", *shares, *map(_describe, failing)


def _most_broken(counts: Mapping[Claimed, tuple[int, int]]) -> Claimed | None:
    """Return the claim that fails on the largest share of the calls tried for it; of several such claims, the first."""
    return max(counts, key=lambda claim: counts[claim][0] / counts[claim][1], default=None)


def _share(counts: Mapping[Claimed, tuple[int, int]], best: Claimed | None) -> str:
    """Return as text the share of calls on which ``best`` fails; if it never fails, that of the claim failing most."""
    claim = best if best in counts else _most_broken(counts)
    if claim is None:
        return "–"
    broken, calls = counts[claim]
    return f"{broken}/{calls}" + ("" if claim == best else f" (`{claim[0]}`)")


def _describe(options: Sequence[str]) -> str:
    return "fails: " + ", ".join(option or "plain" for option in options) if options else "passes"


def main() -> None:
    """Print the table of faults and claims."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--examples", type=int, default=24)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dtype", nargs="+", choices=DTYPES, default=DTYPES)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    head = ("fault", "thread", "claim", *arguments.dtype, *(f"atol 1e-2, {dtype}" for dtype in PRACTICE))
    for row in (head, ["---"] * len(head)):
        print("| " + " | ".join(row) + " |", flush=True)
    for row in rows(arguments.dtype, arguments.examples, arguments.seed):
        print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
