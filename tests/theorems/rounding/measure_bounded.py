"""What bounded arrays cost and how tight they are: ``python -m tests.theorems.rounding.measure_bounded``.

Times are ratios to plain NumPy on the same arrays, measured in turn; widths are measured against ball arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np

from reference_attention.problem import Problem
from tests.theorems import oracle
from tests.theorems.rounding.balls import used
from tests.theorems.rounding.primitives import PRIMITIVES
from theorems.rounding.attention_at import AttentionAt
from theorems.rounding.bounded import Bounded, exact
from theorems.rounding.evaluation import Evaluation

FORMULAS: dict[str, Callable[..., Any]] = {
    "x + y": lambda x, y: x + y,
    "x * y": lambda x, y: x * y,
    "x / y": lambda x, y: x / y,
    "exp(x)": lambda x, y: np.exp(x),
    "log(|y|)": lambda x, y: np.log(abs(y)),
    "sum(x)": lambda x, y: np.sum(x, axis=-1),
    "vecdot(x, y)": np.vecdot,
    "norm(x)": lambda x, y: np.linalg.norm(x, axis=-1),
    "maximum(x, y)": np.maximum,
    "x >= y": lambda x, y: x >= y,
    "log-sum-exp": lambda x, y: np.logaddexp.reduce(x, axis=-1),
}


def seconds(run: Callable[[], Any], other: Callable[[], Any], repeat: int = 200) -> tuple[float, float]:
    """The quickest of many, the two taken in turn."""
    best = [np.inf, np.inf]
    for _ in range(repeat):
        for k, f in enumerate((run, other)):
            start = perf_counter()
            f()
            best[k] = min(best[k], perf_counter() - start)
    return best[0], best[1]


def cost() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 64, 5, 5)) + 3
    a, b = Bounded(x, 1e-12), Bounded(y, 1e-12)
    print("arrays of 64 × 5 × 5: µs bounded, µs NumPy, ratio")
    for name, formula in FORMULAS.items():
        slow, fast = seconds(lambda f=formula: f(a, b), lambda f=formula: f(x, y))  # type: ignore[misc]
        print(f"  {name:14} {slow * 1e6:8.1f} {fast * 1e6:8.1f} {slow / fast:6.1f}")
    problem = Problem(rng.normal(size=(5, 5, 4)), rng.normal(size=(5, 5)))
    points = rng.normal(size=(64, 4)) * 5
    slow, fast = seconds(
        lambda: AttentionAt(problem, points).gradient, lambda: Evaluation(problem, points).gradient, repeat=30
    )
    print(
        f"  gradient at 64 points, n = T = 5: {slow * 1e3:.2f} ms, with its bound derived by hand {fast * 1e3:.2f} ms"
    )


def widths() -> None:
    print("part of the error that the worst of 2,000 exact operands, and the median one, use up")
    rng = np.random.default_rng(3)
    for primitive in PRIMITIVES:
        if primitive.size is None:
            continue
        found = []
        with oracle.precision(300):
            while sum(map(len, found)) < 2000:
                shapes = primitive.shapes[0] if len(primitive.shapes) == 1 else primitive.shapes[1]
                operands = [tame(rng, shape) for tame, shape in zip(primitive.tame, shapes, strict=True)]
                result = primitive.run(*map(exact, operands))
                truth = primitive.truth(*(np.frompyfunc(oracle.arb, 1, 1)(z) for z in operands))
                found.append(np.atleast_1d(used(truth, result)).ravel()[np.atleast_1d(result.error).ravel() >= 0])
        ratio = np.concatenate(found)
        print(f"  {primitive.name:20} {ratio.max():.3f} {np.median(ratio):.3f}")


if __name__ == "__main__":
    cost()
    widths()
