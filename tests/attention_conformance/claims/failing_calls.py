"""The call of the minute profile at which each planted kernel fails, with the claims that are falsified by it.

``failing_calls.json`` holds them by kernel and format, so that ``make test`` tries each kernel on one call.
``python -m tests.attention_conformance.claims.failing_calls`` looks for them anew and writes the file; ``NAME …`` looks
for those of some kernels. What fails in calls of models is looked for in the calls of models first, and everything else
among the smaller calls.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import attention_conformance.kernel.kernel_loader
from attention_conformance.claims.trials import Trial, Trials
from attention_conformance.kernel.kernel_loader import kernel_of
from tests.attention_conformance.claims.combined_faults import FAULTS
from tests.attention_conformance.claims.held_out_faults import IN_BFLOAT16
from tests.attention_conformance.claims.model_faults import IN_HALF_ALONE, MODEL_FAULTS
from tests.child_process import in_a_fork
from theorems.core.claim import Verdict

FILE = Path(__file__).with_suffix(".json")
IN_HALF = ("sums_in_half", "products_in_half")
"""Faults that show in both formats of half precision, and in no other format."""
PLANTED: dict[str, tuple[Callable[..., Any], str]] = {
    f"{name}-{dtype}": (kernel, dtype)
    for name, kernel in (FAULTS | MODEL_FAULTS).items()
    for dtype in (
        ("bfloat16", "float16")
        if name in IN_HALF
        else ("bfloat16",)
        if name in IN_BFLOAT16
        else (IN_HALF_ALONE.get(name, "float64"),)
    )
}
"""Kernels that are wrong in a format, keyed by name and format."""


def trials_on(kernel: Callable[..., Any], dtype: str) -> Trials:
    """Return the calls of the minute profile on a kernel."""
    return Trials(kernel_of(kernel, dtype).as_implementation(), seed=0, strength=2)


def falsified_by(trial: Trial) -> set[str]:
    """Return the claims that a call falsifies, each as "capability: claim", or as its name if it is about all."""
    falsified = (pair for pair in trial.claims if pair[1].verdict is Verdict.FALSIFIED)
    return {f"{about}: {claim.name}" if about else claim.name for about, claim in falsified}


def find(name: str) -> dict[str, Any]:
    """Return the number of the first call that a planted kernel fails, and its falsified claims.

    Each call is made in a process of its own: some kernels remember calls, and ``make test`` makes no other call.

    Raises:
        LookupError: no call of the minute profile shows the fault.
    """
    trials = trials_on(*PLANTED[name])
    cover = trials.cover()
    small_first = (*range(cover.stop), *range(cover.start, 0))
    for number in cover if PLANTED[name][0] in MODEL_FAULTS.values() else small_first:
        done = in_a_fork(partial(_print_falsified, trials, number), Path())
        falsified = json.loads(done.stdout)
        if falsified:
            return {"number": number, "falsified": falsified}
    raise LookupError(f"no call of the minute profile shows {name}")


def _print_falsified(trials: Trials, number: int) -> int:
    print(json.dumps(sorted(falsified_by(trials.at(number)))))
    return 0


def main(names: list[str]) -> None:
    """Look for the calls, and write the file."""
    # The kernel is not to be compiled, as in the tests.
    attention_conformance.kernel.kernel_loader.with_compiler = lambda kernel, *call, **options: kernel
    known = json.loads(FILE.read_text(encoding="utf-8")) if names else {}
    for name in names or PLANTED:
        known[name] = find(name)
        print(name, known[name], flush=True)
        FILE.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
