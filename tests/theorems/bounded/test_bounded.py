"""Every primitive against ball arithmetic: the true value is always inside, and the ball is never absurdly wide."""

from __future__ import annotations

import numpy as np
import pytest
from flint import arb

from tests.theorems import oracle
from tests.theorems.bounded.balls import BITS, escaped, sampled, used, wide, with_errors
from tests.theorems.bounded.primitives import NO_NUMBERS, PRIMITIVES, Primitive
from theorems.bounded import Bounded
from theorems.bounded.arithmetic import EPS, LIBRARY, UNIT
from theorems.bounded.array import FUNCTIONS, UFUNCS

TRIALS = 12
"""Number of draws of operands per primitive, kind of values and shapes."""

each_primitive = pytest.mark.parametrize("primitive", PRIMITIVES, ids=lambda p: p.name)


def failures(primitive: Primitive, seed: int, trials: int = TRIALS) -> list[str]:
    """Return descriptions of entries whose true value is outside the result's ball, for adversarial operands."""
    rng = np.random.default_rng(seed)
    results = []
    with oracle.precision(BITS), np.errstate(all="ignore"):
        for draw in primitive.draws:
            for shapes in primitive.shapes:
                large = max(int(np.prod(shape)) for shape in shapes) > 200
                for _ in range(1 if large else trials):
                    operands = [with_errors(rng, draw(rng, shape)) for shape in shapes]
                    result = primitive.run(*operands)
                    for _ in range(2):
                        truth = primitive.truth(*(sampled(rng, x) for x in operands))
                        results += escaped(truth, result)
    return results


@each_primitive
def test_the_true_value_is_inside_the_ball_of_the_result(primitive: Primitive) -> None:
    result = failures(primitive, seed=20230613)
    assert not result, "\n".join(result[:5])


@each_primitive
def test_the_bound_on_a_rule_s_own_rounding_is_not_absurdly_wide(primitive: Primitive) -> None:
    rng = np.random.default_rng(1)
    for shapes in primitive.shapes:
        operands = [tame(rng, shape) for tame, shape in zip(primitive.tame, shapes, strict=True)]
        result = primitive.run(*map(Bounded, operands))
        allowed = 0.0 if primitive.size is None else primitive.roundings * UNIT * np.abs(primitive.size(*operands))
        assert (result.error <= allowed + 1e-300).all(), (result.error / allowed).max()


@each_primitive
def test_the_bound_on_inherited_errors_is_not_absurdly_wide(primitive: Primitive) -> None:
    """If operands are positive and known to 1e-6, some corner of their balls must use much of the result's ball."""
    rng = np.random.default_rng(2)
    for shapes in primitive.shapes:
        values = [np.abs(tame(rng, shape)) for tame, shape in zip(primitive.tame, shapes, strict=True)]
        operands = [Bounded(x, 1e-6 * np.abs(x)) for x in values]
        result = primitive.run(*operands)
        assert np.isfinite(result.error).all()
        if not result.size or max(x.size for x in operands) > 5000:
            continue
        with oracle.precision(200):
            most = np.zeros(result.shape)
            # Corners: all up, all down, away from zero, towards zero, and the second operand against the first.
            for corner in ([1.0, 1.0], [-1.0, -1.0], [1.0, -1.0]):
                exact = [sampled(rng, x, c) for x, c in zip(operands, corner, strict=False)]
                most = np.maximum(most, used(primitive.truth(*exact), result))
        assert np.median(most) >= primitive.use, np.median(most)


def test_every_rule_of_bounded_arrays_is_in_the_table_of_tests() -> None:
    tested = {primitive.key for primitive in PRIMITIVES} | NO_NUMBERS
    assert {*UFUNCS, *FUNCTIONS} == tested


def test_library_functions_are_as_good_as_assumed() -> None:
    """NumPy's exp, expm1, log and log1p on vectors, strided vectors and scalars err by at most LIBRARY units, twice the
    measured error.
    """
    rng = np.random.default_rng(5)
    near_one = 1 + rng.normal(size=4000) * 10.0 ** rng.uniform(-16, 0, 4000)
    operands = {
        "exp": np.concatenate([rng.uniform(-708, 709, 20_000), rng.normal(size=4000) * 1e-3]),
        "expm1": np.append(rng.uniform(-50, 709, 10_000), rng.normal(size=4000) * 10.0 ** rng.uniform(-300, 0, 4000)),
        "log": np.concatenate([np.exp(rng.uniform(-708, 709, 20_000)), np.abs(near_one), np.full(1, 5e-324)]),
        "log1p": np.concatenate(
            [np.exp(rng.uniform(-690, 709, 10_000)), -rng.random(4000), near_one[near_one > 1e-9] - 1]
        ),
    }
    worst = {}
    with oracle.precision(200):
        for name, x in operands.items():
            for values in (getattr(np, name)(x), getattr(np, name)(np.repeat(x, 2)[::2][:500])):
                for a, v in zip(x.tolist(), values.tolist(), strict=False):
                    truth = getattr(arb(a), name)()
                    if truth != 0:
                        worst[name] = max(worst.get(name, 0.0), float((abs(arb(v) - truth) / abs(truth)).mid()) / EPS)
    print({name: round(w, 3) for name, w in worst.items()})
    assert max(worst.values()) <= LIBRARY / 2


def test_comparisons_are_true_only_where_they_are_certain() -> None:
    rng = np.random.default_rng(6)
    sure = 0
    with oracle.precision(BITS), np.errstate(all="ignore"):
        for _ in range(40):
            a, b = with_errors(rng, wide(rng, (60,))), with_errors(rng, wide(rng, (60,)))
            near = Bounded(np.where(np.isfinite(a.value), a.value * (1 + EPS * rng.integers(-2, 3, 60)), 0.0), 0.0)
            for other in (b, near, a):
                s, t = sampled(rng, a), sampled(rng, other)
                for k in range(60):
                    for message, is_true in (
                        ((a >= other)[k], s[k] >= t[k]),
                        ((a > other)[k], s[k] > t[k]),
                        ((a <= other)[k], s[k] <= t[k]),
                        ((a < other)[k], s[k] < t[k]),
                        ((a == other)[k], s[k] == t[k]),
                        ((a != other)[k], s[k] != t[k]),
                    ):
                        if other is not a:  # s and t are different samples of the ball of a
                            assert is_true or not message
                            sure += bool(message)
    assert sure > 5000


@pytest.mark.parametrize(
    ("value", "error", "most"),
    [
        ([0.0, -1e25], [0.0, 1e10], 1e-300),
        ([0.0, -1e25], [1e-14, 1e10], 2e-14),
        ([-1e52, -1e103], [1e38, 1e88], 1.1e38),
        ([-1e52, -1e103], [1e38, 1e104], 1e104),
        ([0.0, -100.0], [0.0, 99.0], 0.4),
    ],
)
def test_a_negligible_term_adds_no_error_to_a_log_sum_exp(value: list[float], error: list[float], most: float) -> None:
    x = Bounded(value, error)
    result = np.logaddexp.reduce(x)
    assert result.error <= most
    with oracle.precision(BITS):
        for corner in (-1.0, 1.0):
            ends = [arb(v) + arb(corner) * arb(e) for v, e in zip(value, error, strict=True)]
            top = max(ends, key=float)
            truth = top + sum(((end - top).exp() for end in ends), arb(0)).log()
            assert not escaped(np.asarray(truth, dtype=object), result)
