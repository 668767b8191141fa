"""The minimiser of a penalised log-sum-exp of rows, close to the limit of gradient descent's offset from its ray."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64

from reference_attention.span import span_of_rows


def log_sum_exp_minimiser(
    rows: Float64[np.ndarray, "m d"],
    log_weights: Float64[np.ndarray, "m"],
    penalty: float,
    start: Float64[np.ndarray, "d"],
) -> Float64[np.ndarray, "d"]:
    """Return the minimiser w of log Σ_j e^{a_j − r_j·w} + penalty |w|²/2, by damped Newton steps, (d,).

    Args:
        rows: the rows r_j, (m, d).
        log_weights: the logarithms a_j of the weights, (m,).
        penalty: the penalty, positive.
        start: the point where Newton's method starts, (d,), in the span of the rows, as are all steps and the
            minimiser.
    """
    if (span := span_of_rows(rows)) is not None:
        return span.points(log_sum_exp_minimiser(span.coordinates(rows), log_weights, penalty, span.coordinates(start)))
    w = start

    def value(w: Float64[np.ndarray, "d"]) -> float:
        return float(np.logaddexp.reduce(log_weights - rows @ w)) + penalty * float(w @ w) / 2

    now = value(w)
    for _ in range(60):
        logs = log_weights - rows @ w
        share = np.exp(logs - np.logaddexp.reduce(logs))
        mean = share @ rows
        gradient = penalty * w - mean
        curvature = (rows * share[:, None]).T @ rows - np.outer(mean, mean) + penalty * np.eye(w.size)
        step = np.linalg.solve(curvature, gradient)
        damping = 1.0
        while damping > 1e-6 and value(w - damping * step) > now - 1e-4 * damping * float(gradient @ step):
            damping /= 2
        w = w - damping * step
        before, now = now, value(w)
        if float(gradient @ step) < 1e-26 or before - now <= 0:
            break
    return w
