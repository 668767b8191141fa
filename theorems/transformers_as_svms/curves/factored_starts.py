"""Starts for training (K, Q): factors of a W with the margin that the statements require, and arbitrary factors."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.linalg import norm

from generators.case import Case
from reference_attention.query_dataset import QueryDataset
from reference_attention.training.factorization import Keys, Queries
from theorems.bounded import exact, value_of
from theorems.core.claim import Form, Undecided
from theorems.core.points import log_uniform
from theorems.curves.margin_points import Margins, beside_the_ray, with_least_margin
from theorems.rounding.attention_at import Numbers

LARGEST = 1e4
"""The largest required margin of a start: beyond this margin floats do not resolve both the weights and the steps."""
ASKEW = (0.1, 10.0)
"""The range of the distance of W(0) from the ray of W^mm, in units of ‖W^mm‖."""
SPREAD = (0.5, 2.0)
"""The range of the singular values of K(0), before it is scaled."""
UNEVEN = (10.0, 1000.0)
"""The range of the number by which one factor is multiplied and the other divided in :func:`uneven_factors`."""
ABOVE = 2.0
"""The ratio of ‖K(0)⁻¹‖⁻² to ‖Q(0)‖²; above 1, KᵀK ≻ QᵀQ."""


@runtime_checkable
class MarginsWithKappa(Margins, Protocol):
    """A problem's margins, and a bound κ on the decrease of the least margin while the risk does not increase."""

    @property
    def kappa(self) -> Numbers:
        """The constant κ of Theorem 1 of the first paper, the most by which the least margin decreases."""


def margin_needed(constants: MarginsWithKappa, claim: str) -> Numbers:
    """Compute the margin κ + max(1, log(2(T − 1))) that a start needs.

    A run from this margin keeps its least margin m ≥ 1 and (T − 1)e^{−m} ≤ ½.

    Raises:
        Undecided: floats do not resolve steps at this margin; ``claim`` is the name of the undecided claim.
    """
    least = np.maximum(np.log(exact(2.0 * (constants.problem.T - 1))), 1.0)
    required: Any = constants.kappa + least
    if not (float(value_of(required)) < LARGEST and float(np.max(required.error)) < 1):
        why = f"the start needs a margin of {float(value_of(required)):.3g}, where float64 resolves no step"
        raise Undecided(claim, why, Form.EFFECTIVE)
    return required


def factors_with_margin(
    case: Case, constants: Margins, required: Numbers, rng: np.random.Generator
) -> tuple[Keys, Queries]:
    """Return a square K and a Q with KᵀK ≻ QᵀQ and least margin m(K Qᵀ) ≥ ``required``.

    K0 and Q0 of the case are returned if they have the required margin. Otherwise W(0) is drawn near the ray of W^mm,
    and K is a random matrix, scaled so that KᵀK ≻ QᵀQ for Q = W(0)ᵀ K^{−T}.
    """
    assert case.queried is not None
    d, e = case.queried.shape
    if "K0" in case.arrays and "Q0" in case.arrays:
        K, Q = case.arrays["K0"], case.arrays["Q0"]
        if bool(constants.margins(exact((K @ Q.T).ravel())) >= required):
            return K, Q
    beside = beside_the_ray(rng, constants, log_uniform(rng, *ASKEW, 1))
    target = np.array([float(value_of(required) + required.error) * (1 + 1e-9)])
    W = with_least_margin(constants, beside, target)[0].reshape(d, e)
    frame = np.linalg.qr(rng.normal(size=(d, d)))[0] * rng.uniform(*SPREAD, size=d)
    Q = np.linalg.solve(frame, W).T
    scale = (ABOVE * norm(Q, 2) ** 2 / np.linalg.svd(frame, compute_uv=False)[-1] ** 2) ** 0.25
    return scale * frame, Q / scale


def any_factors(data: QueryDataset, rng: np.random.Generator, m: int) -> list[tuple[Keys, Queries]]:
    """Draw m pairs of factors of any width and size; in some pairs one factor is much larger, of rank one, or zero."""
    (d, e), unit = data.shape, data.problem.key_scale**-0.5
    factors = []
    for k in range(m):
        width = int(rng.integers(1, max(d, e) + 2))
        sizes = unit * log_uniform(rng, 1e-2, 1e2, 2)
        K, Q = sizes[0] * rng.normal(size=(d, width)), sizes[1] * rng.normal(size=(e, width))
        if k % 4 == 1:
            K[:, 1:] = 0.0
        if k % 8 == 2:
            Q[:] = 0.0
        factors.append((K, Q))
    return factors


def uneven_factors(data: QueryDataset, rng: np.random.Generator) -> tuple[Keys, Queries]:
    """Draw a large factor and a small one with moderate logits, where too long steps visibly raise the risk."""
    (d, e), unit = data.shape, data.problem.key_scale**-0.5
    width, size = int(rng.integers(1, max(d, e) + 2)), float(log_uniform(rng, *UNEVEN, 1)[0])
    K, Q = unit * size * rng.normal(size=(d, width)), unit / size * rng.normal(size=(e, width))
    return (K, Q) if rng.random() < 0.5 else (K / size**2, Q * size**2)
