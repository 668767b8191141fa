"""The coefficients of −∇L as a sum of the rows G of ATT-SVM.

The rows are G_it = (x_i,opt − x_it) z_iᵀ for t ≠ opt_i. The factor e^{−log_scale}, one per point, keeps small gradients
within the range of float64.

Derivations: :mod:`theorems.transformers_as_svms.factored_descent`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Bool

from theorems.bounded import with_rounding
from theorems.rounding.attention_at import AttentionAt, Numbers


def certificate_sides(at: AttentionAt) -> tuple[Numbers, Bool[np.ndarray, "b"]]:
    """Compute the sum of the coefficients ω_it of −∇L = Σ ω_it G_it, and whether all are certainly ≥ 0, (b,) each.

    The coefficients are ω_it = (1/n)|ℓ'_i| s_it (f_i − γ_it) for t ≠ opt_i, with f_i the output of input i.
    Their sum is multiplied by e^{−log_scale} (see the module).
    """
    problem = at.problem
    omega: Any = -at.coefficients / problem.n
    below = np.asarray(at.outputs[..., None] >= problem.scores) | (at.token[..., None] == np.arange(problem.T))
    leads = np.all(at.token == problem.optimal, axis=-1) & np.all(below, axis=(-2, -1))
    return np.sum(omega, axis=(-2, -1)), leads


def signed_variances(at: AttentionAt) -> Numbers:
    """Compute |ℓ'_i| Var_i e^{−log_scale}, (b, n), for the variances Var_i = Σ_t s_it (γ_it − f_i)² of scores."""
    problem, tokens = at.problem, np.arange(at.problem.T)
    chosen_scores = np.take_along_axis(problem.scores[None], at.token[..., None], axis=2)
    # A score may be a rounded product Y vᵀx with an error bound; its difference from itself is exactly 0.
    apart = np.where(tokens == at.token[..., None], 0.0, with_rounding(problem.scores) - with_rounding(chosen_scores))
    return np.vecdot(at.coefficients, apart)
