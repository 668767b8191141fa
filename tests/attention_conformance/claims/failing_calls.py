"""For each faulty kernel, the first call of ``theorems verify --profile minute`` that the kernel fails, and the claims
that this call falsifies.

``failing_calls.json`` stores both by kernel and number format, so that ``make test`` tries each kernel on one call.
``python -m tests.attention_conformance.claims.failing_calls`` searches all calls anew and writes the file; given names
of kernels, it searches only for these. Faults of ``model_faults`` are searched for among the calls with sizes of models
first, all other faults among the smaller calls first.
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
"""Names of the faults that show in bfloat16 and float16, and in no other format."""
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
"""Each faulty kernel and a number format in which the kernel is wrong, by the key NAME-FORMAT."""


def trials_on(kernel: Callable[..., Any], dtype: str) -> Trials:
    """Return the calls that ``--profile minute`` makes to a kernel in a number format."""
    return Trials(kernel_of(kernel, dtype).as_implementation(), seed=0, strength=2)


def falsified_by(trial: Trial) -> set[str]:
    """Return the claims that a call falsifies, as "capability: claim", or "claim" if it concerns every capability."""
    falsified = (pair for pair in trial.claims if pair[1].verdict is Verdict.FALSIFIED)
    return {f"{about}: {claim.name}" if about else claim.name for about, claim in falsified}


def find(name: str) -> dict[str, Any]:
    """Return the number of the first call that a faulty kernel, named by its key in :data:`PLANTED`, fails, and the
    falsified claims.

    Each call is made in its own process: some kernels remember earlier calls, and ``make test`` makes only this call.

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
    """Search for the failing call of each named kernel, or of all, and write the file."""
    # Do not compile kernels; make test does not, either.
    attention_conformance.kernel.kernel_loader.with_compiler = lambda kernel, *call, **options: kernel
    known = json.loads(FILE.read_text(encoding="utf-8")) if names else {}
    for name in names or PLANTED:
        known[name] = find(name)
        print(name, known[name], flush=True)
        FILE.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
