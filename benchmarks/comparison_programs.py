"""Simple programs with which our times are compared: a loop in numba, and a loop around SciPy's LSODA."""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from scipy.integrate import LSODA


@njit
def normalized_descents(keys, scores, points, steps, length):  # type: ignore[no-untyped-def]
    """Run normalized descent on the logistic risk, trial by trial, changing ``points`` (b, d) in place.

    Sums are computed in logarithms, so that nothing underflows.
    """
    b, n, tokens, d = keys.shape
    logs, signs = np.empty((n, tokens)), np.empty((n, tokens))
    logits, direction = np.empty(tokens), np.empty(d)
    selected = np.empty(n, dtype=np.int64)
    for k in range(b):
        p = points[k]
        for _ in range(steps):
            top = -np.inf
            for i in range(n):
                best = 0
                for t in range(tokens):
                    logits[t] = 0.0
                    for a in range(d):
                        logits[t] += keys[k, i, t, a] * p[a]
                    if logits[t] > logits[best]:
                        best = t
                selected[i] = best
                total, mean = 1.0, 0.0
                for t in range(tokens):
                    if t != best:
                        weight = math.exp(logits[t] - logits[best])
                        total += weight
                        mean += weight * (scores[k, i, t] - scores[k, i, best])
                mean /= total
                output = scores[k, i, best] + mean
                log_slope = -math.log1p(math.exp(output)) if output < 0 else -output - math.log1p(math.exp(-output))
                for t in range(tokens):
                    if t != best:
                        centred = scores[k, i, t] - scores[k, i, best] - mean
                        signs[i, t] = -1.0 if centred > 0 else 1.0
                        logs[i, t] = log_slope + logits[t] - logits[best] - math.log(total) + math.log(abs(centred))
                        top = max(top, logs[i, t])
            direction[:] = 0.0
            for i in range(n):
                for t in range(tokens):
                    if t != selected[i]:
                        share = signs[i, t] * math.exp(logs[i, t] - top)
                        for a in range(d):
                            direction[a] += share * (keys[k, i, t, a] - keys[k, i, selected[i], a])
            size = math.sqrt((direction * direction).sum())
            for a in range(d):
                p[a] -= length * direction[a] / size


def lsoda_loop(keys: np.ndarray, scores: np.ndarray, start: np.ndarray, norm: float) -> np.ndarray:
    """Integrate dp/ds = −∇L/‖∇L‖, for the logistic risk L, by SciPy's LSODA, step by step until ‖p‖ is ``norm``."""

    def velocity(s: float, p: np.ndarray) -> np.ndarray:
        logits = keys @ p
        best = logits.argmax(axis=1)[:, None]
        rows = keys - np.take_along_axis(keys, best[..., None], axis=1)
        gaps = scores - np.take_along_axis(scores, best, axis=1)
        relative = logits - np.take_along_axis(logits, best, axis=1)
        log_weights = relative - np.log(np.exp(relative).sum(axis=1, keepdims=True))
        mean = (np.exp(log_weights) * gaps).sum(axis=1, keepdims=True)
        output = np.take_along_axis(scores, best, axis=1) + mean
        with np.errstate(divide="ignore"):
            logs = log_weights + np.log(np.abs(gaps - mean)) - np.logaddexp(0, output)
        np.put_along_axis(logs, best, -np.inf, axis=1)
        coefficients = np.copysign(np.exp(logs - logs.max()), mean - gaps)
        direction = np.einsum("nt,ntd->d", coefficients, rows)
        return -direction / np.linalg.norm(direction)

    solver = LSODA(velocity, 0.0, start, 10 * norm, rtol=1e-9, atol=1e-10)
    while np.linalg.norm(solver.y) < norm:
        solver.step()
    return np.asarray(solver.y)
