"""Activations against high-precision arithmetic; heads that do not fit are refused."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

from reference_attention.errors import InvalidInput
from reference_attention.heads import ACTIVATIONS, Activation, Head

EXACT = {
    "linear": lambda z: z,
    "tanh": mpmath.tanh,
    "arctan": mpmath.atan,
    "softplus": lambda z: mpmath.log1p(mpmath.exp(z)),
    "relu": lambda z: max(z, mpmath.mpf(0)),
}
POSITIONS = (-6.0, -1.25, -0.25, 0.0, 0.25, 2.0, 6.0)


def exact_change(phi: Activation, z: float, sign: float, size: mpmath.mpf) -> mpmath.mpf:
    with mpmath.workdps(80):
        f = EXACT[phi.name]
        return abs(f(mpmath.mpf(z) + sign * size) - f(mpmath.mpf(z)))


@pytest.mark.parametrize("phi", ACTIVATIONS, ids=lambda phi: phi.name)
@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_changes_of_activations_agree_with_80_digit_arithmetic(phi: Activation, sign: float) -> None:
    """Compare steps from e^{−100} to 9 with exact arithmetic, and the step e^{−5000} with the slope."""
    for z in POSITIONS:
        for log_size in (-100.0, -30.0, -18.5, -18.3, -5.0, -0.5, 0.0, 1.0, 2.2):
            with mpmath.workdps(80):
                expected = exact_change(phi, z, sign, mpmath.exp(mpmath.mpf(log_size)))
            result = float(phi.log_change(np.array([z]), np.array([sign]), np.array([log_size]))[0])
            if expected == 0:
                assert result == -np.inf
            elif phi.name != "relu" or z * sign >= 0 or expected > 1e-12:
                # The tolerance covers the rounding of log δ, of e^{log δ}, and of a handful of operations.
                assert result == pytest.approx(
                    float(mpmath.log(expected)), abs=4e-15 * (1 + abs(log_size) + abs(z)) * 4
                )
        tiny = float(phi.log_change(np.array([z]), np.array([sign]), np.array([-5000.0]))[0])
        slope = float(phi.slope(np.array([z]), np.array([sign]))[0])
        assert tiny == (-np.inf if slope == 0 else pytest.approx(-5000 + np.log(slope), abs=1e-11))


@pytest.mark.parametrize("phi", ACTIVATIONS, ids=lambda phi: phi.name)
def test_bounds_on_secants_and_slopes_of_activations_hold_and_are_attained(phi: Activation) -> None:
    for z in POSITIONS:
        for sign in (-1.0, 1.0):
            for reach in (0.25, 1.0, 4.0, 12.0):
                steps = np.geomspace(1e-6, reach, 400)
                args = np.full(400, z), np.full(400, sign)
                secants = np.exp(phi.log_change(*args, np.log(steps)) - np.log(steps))
                low = float(phi.lowest_secant(args[0][:1], args[1][:1], np.array([reach]))[0])
                high = float(phi.highest_slope(args[0][:1], args[1][:1], np.array([reach]))[0])
                assert secants.min() >= low * (1 - 1e-9)
                assert secants.min() <= low + 1e-4 * (1 + low)
                assert secants.max() <= high * (1 + 1e-9)


@pytest.mark.parametrize("phi", ACTIVATIONS, ids=lambda phi: phi.name)
def test_stiffness_bounds_the_second_order_term(phi: Activation) -> None:
    for z in POSITIONS:
        for sign in (-1.0, 1.0):
            steps = np.geomspace(1e-3, 8.0, 60)
            args = np.full(60, z), np.full(60, sign)
            slope = phi.slope(*args)
            change = np.exp(phi.log_change(*args, np.log(steps)))
            stiffness = np.exp(phi.log_stiffness(*args))
            off = np.abs(change - slope * steps)
            inside = steps * stiffness <= 1 if slope[0] == 0 else np.ones(60, dtype=np.bool_)
            assert (off[inside] <= (slope * stiffness * steps**2 * (1 + 1e-9) + 1e-14 * steps + 1e-15)[inside]).all()


def test_relu_is_stiff_only_for_steps_towards_its_kink() -> None:
    relu = ACTIVATIONS[4]
    z, sign = np.array([-2.0, -2.0, 0.0, 0.0, 4.0, 4.0]), np.array([-1.0, 1.0, -1.0, 1.0, -1.0, 1.0])
    assert np.exp(relu.log_stiffness(z, sign)).tolist() == pytest.approx([0.0, 0.5, 0.0, 0.0, 0.25, 0.0])


def test_a_head_copies_its_arrays() -> None:
    features, weights, labels = np.zeros((1, 3, 2)), np.ones(2), np.ones(1)
    head = Head(features, weights, np.array([0, 1]), labels)
    features += 1
    weights += 1
    labels += 1
    assert not head.features.any()
    assert (head.weights == 1).all()
    assert (head.labels == 1).all()


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"weights": np.array([1.0, 0.0])}, "weight 1 is zero"),
        ({"activations": np.array([0, 7])}, "not all known"),
        ({"labels": np.array([0.5])}, "labels must be"),
        ({"features": np.full((1, 3, 2), np.nan)}, "head_features: entry"),
    ],
)
def test_heads_that_do_not_fit_are_refused(changed: dict[str, np.ndarray], says: str) -> None:  # type: ignore[type-arg]
    right = {
        "features": np.zeros((1, 3, 2)),
        "weights": np.ones(2),
        "activations": np.array([0, 1]),
        "labels": np.ones(1),
    }
    with pytest.raises(InvalidInput, match=says):
        Head(**{**right, **changed})  # type: ignore[arg-type]


def test_outputs_of_a_head_are_those_of_its_network() -> None:
    rng = np.random.default_rng(0)
    features, weights = rng.standard_normal((2, 3, 5)), rng.standard_normal(5)
    head = Head(features, weights, np.arange(5), np.array([1.0, -1.0]))
    s = rng.dirichlet(np.ones(3), size=2)
    x = np.einsum("nt,ntm->nm", s, features)
    hidden = np.stack(
        [x[:, 0], np.tanh(x[:, 1]), np.arctan(x[:, 2]), np.log1p(np.exp(x[:, 3])), np.maximum(x[:, 4], 0)], 1
    )
    assert head.outputs(s) == pytest.approx(np.array([1.0, -1.0]) * (hidden @ weights), rel=1e-13)


@pytest.mark.parametrize("phi", ACTIVATIONS[1:4], ids=lambda phi: phi.name)
def test_the_second_order_term_attains_the_stiffness_somewhere(phi: Activation) -> None:
    """A larger stiffness would be a bound too, but would weaken every statement that uses it."""
    z, sign, log_size = np.linspace(-3, 3, 601), np.ones(601), np.full(601, math.log(1e-3))
    slope, delta = phi.slope(z, sign), 1e-3
    off = np.abs(np.exp(phi.log_change(z, sign, log_size)) - slope * delta)
    assert (off / (slope * np.exp(phi.log_stiffness(z, sign)) * delta**2)).max() > 0.99


def test_a_linear_activation_is_not_stiff() -> None:
    assert (ACTIVATIONS[0].log_stiffness(np.array([-1.0, 0.0]), np.array([1.0, -1.0])) == -math.inf).all()


@pytest.mark.parametrize("phi", ACTIVATIONS, ids=lambda phi: phi.name)
def test_the_secant_of_a_zero_step_is_the_slope(phi: Activation) -> None:
    z, sign = np.array(POSITIONS), np.ones(len(POSITIONS))
    assert phi.lowest_secant(z, sign, np.zeros(len(POSITIONS))).tolist() == phi.slope(z, sign).tolist()


def test_the_output_of_a_linear_head_is_the_weighted_sum_of_scores() -> None:
    scores, s = np.array([[1.0, -2.0, 0.5], [3.0, 0.0, 1.0]]), np.array([[0.5, 0.25, 0.25], [0.0, 0.5, 0.5]])
    assert Head.linear(scores).outputs(s).tolist() == (scores * s).sum(axis=1).tolist()


def test_moving_features_along_the_signs_of_a_head_lowers_every_output() -> None:
    rng = np.random.default_rng(1)
    head = Head(rng.standard_normal((4, 3, 5)), rng.standard_normal(5), np.arange(5), np.array([1.0, -1.0, 1.0, -1.0]))
    inputs = rng.uniform(0.5, 1.0, (4, 5))
    for unit in range(5):
        moved = inputs.copy()
        moved[:, unit] += 0.1 * head.signs[:, unit]
        assert (head.outputs_of(moved) < head.outputs_of(inputs)).all()


def test_a_batch_of_weights_gives_the_output_of_each() -> None:
    rng = np.random.default_rng(2)
    head = Head(rng.standard_normal((4, 3, 5)), rng.standard_normal(5), np.arange(5), np.ones(4))
    s = rng.dirichlet(np.ones(3), size=(2, 6, 4))
    result = head.outputs(s)
    assert result.shape == (2, 6, 4)
    for k in np.ndindex(2, 6):
        assert result[k] == pytest.approx(head.outputs(s[k]), rel=1e-14)
