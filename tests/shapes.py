"""A check of the shapes and dtypes in signatures at every call, with every statement on one small case.

Such checks double the time of the tests, so ``make test`` makes them only in this pass, in its own process (``python -m
tests.shapes``). ``make shapes`` makes them in every test.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import hypothesis.strategies
import numpy as np
from hypothesis import HealthCheck, Phase
from jaxtyping import TypeCheckError, install_import_hook

from tests.places import ROOT

INNER_LOOPS = {
    "generators.subject",
    "reference_attention.exact",
    "reference_attention.floats",
    "reference_attention.loss",
    "reference_attention.losses",
    "reference_attention.paths.ball_search",
    "reference_attention.paths.excess_risk",
    "reference_attention.paths.joint_risk",
    "reference_attention.paths.joint_curvature",
    "reference_attention.paths.joint_newton",
    "reference_attention.paths.local_path",
    "reference_attention.array_functions",
    "reference_attention.risk",
    "reference_attention.svm.certificate",
    "reference_attention.svm.float_solution",
    "reference_attention.svm.least_norm",
    "reference_attention.training.arc_length",
    "reference_attention.training.derivatives",
    "reference_attention.training.iteration",
    "reference_attention.training.joint_descent",
    "theorems.bounded.arithmetic",
    "theorems.bounded.array",
    "theorems.token_selection.local_paths.local_constants",
    "theorems.token_selection.local_paths.correlation_constant",
}
"""Modules whose signatures are not checked. Most are called thousands of times by one call of a checked module, or make
thousands of functions, so that checks would take most of the tests' time. One has methods that return Self, which
beartype understands only in classes that are decorated with beartype.
"""

PACKAGES = ("reference_attention", "generators", "theorems", "attention_conformance")


def modules() -> list[str]:
    """Return the modules whose signatures are checked."""
    paths = [path.relative_to(ROOT) for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    names = [".".join(path.with_suffix("").parts) for path in paths if path.stem != "__init__"]
    return [name for name in names if name not in INNER_LOOPS]


def check_shapes() -> None:
    """Check the arguments and results of all functions of modules that are imported from now on."""
    # beartype would refuse Hypothesis' draw functions, which are not instances of Hypothesis' protocol DrawFn.
    hypothesis.strategies.DrawFn = Callable  # type: ignore[misc, assignment]
    install_import_hook(modules(), "beartype.beartype")


def failures() -> Iterator[str]:
    """Yield a line for each statement that violates a signature on the smallest of a few drawn cases."""
    # Import only now: modules that are imported before check_shapes() is called are not checked.
    from attention_conformance.kernel.check import verify_kernel
    from examples.kernels import handwritten
    from generators.hypothesis_driver import drive
    from generators.user_data import as_text
    from reference_attention.errors import InvalidInput
    from reference_attention.svm.max_margin_sets import max_margin_sets
    from theorems.core.check import check
    from theorems.core.implementation import REFERENCE
    from theorems.run.registry.suite import capabilities, statements

    try:
        max_margin_sets(np.zeros((1, 3, 2)), np.zeros((1, 2), dtype=np.bool_))
        yield "a mask of two tokens for three is accepted"
    except InvalidInput:
        yield "a mask of two tokens for three reaches the function: shapes are not checked"
    except TypeCheckError:
        pass
    for id, statement in statements().items():
        if statement.kernel is not None and statement.kernel.capability:
            continue
        cases: list[Any] = []
        drive(
            statement.cases(),
            cases.append,
            examples=5,
            seed=0,
            phases=[Phase.generate],
            unchecked=list(HealthCheck),
            near_copies=False,
        )
        smallest = min(cases, key=lambda case: len(as_text(case)))
        outcome = check(statement, smallest, REFERENCE)
        if outcome.error:
            yield f"{id}: {outcome.reason}"
    for result in verify_kernel(handwritten, statements=[*capabilities(), "lemma-3"], examples=1):
        if result.verdict not in ("upheld", "not-applicable"):
            yield f"{result.id}: {result.reason}"


if __name__ == "__main__":
    # Hypothesis warns of ``random``, with which beartype chooses the item of a container that it checks.
    warnings.filterwarnings("ignore", "Do not use the `random` module inside strategies")
    check_shapes()
    lines = list(failures())
    print("\n".join(lines))
    sys.exit(bool(lines))
