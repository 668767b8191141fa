"""The joint gradient under test, compared with the paper's formula at pairs (v, p) of moderate size.

With v = r v̄_mm + w, z_it = Y_i x_it, the softmax weights s, u_i = Σ_t s_it z_it·v, L = mean ℓ(u_i) and ℓ(u) = log(1 +
e^{−u}):

    ∇_v log L = −Σ_i |ℓ'(u_i)| Σ_t s_it z_it / Σ_i ℓ(u_i),
    ∇_p log L = −Σ_i |ℓ'(u_i)| Σ_t s_it (z_it·v − u_i) k_it / Σ_i ℓ(u_i).

References: *Max-Margin Token Selection in Attention Mechanism*, Section 3, (ERM) with logistic loss.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Float64

from reference_attention.paths.joint_risk import joint_gradient
from theorems.bounded import exact
from theorems.core.claim import Claim, Form, NotANumber, at_least
from theorems.core.claim_name import premise
from theorems.core.implementation import Implementation
from theorems.rounding.attention_at import AttentionAt, Numbers
from theorems.token_selection.joint_paths.joint_setup import JointSetup

POINTS = 6
"""The number of pairs (v, p) at which the claims are made."""


JOINT_GRADIENTS = tuple(
    premise(name) for name in ("joint-log-risk", "joint-gradient-in-head", "joint-gradient-in-prompt")
)
"""The claims of :func:`joint_gradients` on the risk, on its derivative in the head, and on that in the prompt."""


def joint_gradients(setup: JointSetup, under_test: Implementation, rng: np.random.Generator) -> Iterator[Claim]:
    """Yield the claims that log L + rΓ and its derivatives in head and prompt agree with the formulas of the module."""
    joint = setup.joint
    d, k = joint.tokens.shape[2], joint.keys.shape[2]
    unit = joint.longest_row
    size = float(np.max(np.linalg.norm(joint.tokens, axis=-1)))
    p = rng.normal(size=(POINTS, k)) * (2 / unit)
    # The parts r v̄_mm and w of v have about the same length, so an implementation that leaves out either of them is
    # falsified.
    w = rng.normal(size=(POINTS, d)) * (2 / size)
    log_r = float(np.log(2 / size))
    reported = [under_test[joint_gradient](joint, log_r, w[m], p[m]) for m in range(POINTS)]
    for name, part, right in zip(
        JOINT_GRADIENTS,
        (np.array([x[part] for x in reported]) for part in range(3)),
        _formulas(setup, np.exp(log_r), w, p),
        strict=True,
    ):
        if not np.isfinite(part).all():
            raise NotANumber(name, "the joint gradient under test is not finite", Form.EXACT)
        # The rounding error is doubled, because the implementation under test may sum in another order.
        gap = np.abs(right.widen(right.error) - part)
        yield at_least(name, Form.EXACT, 0.0, gap, scale=1.0 + np.abs(part), points="entry")


def _formulas(
    setup: JointSetup, r: float, w: Float64[np.ndarray, "m d"], p: Float64[np.ndarray, "m k"]
) -> tuple[Numbers, Numbers, Numbers]:
    """Return log L + rΓ, (m,), and its derivatives in the offset w of the head, (m, d), and in p, (m, k).

    The errors also cover an implementation that sums differences from α, Σ_t s_it z_it = z_iα − Σ_t s_it (z_iα − z_it):
    where α has little weight, the rounding error of this sum is that of z_iα, which may exceed the rounding error of
    Σ_t s_it z_it.
    """
    tokens, keys = exact(setup.joint.tokens), exact(setup.joint.keys)
    s = AttentionAt(setup.problem, p).weights
    v = r * setup.u + exact(w)
    outputs = np.vecdot(tokens, v[:, None, None])
    u = np.sum(s * outputs, axis=-1)
    losses = np.log1p(np.exp(-u))
    slopes = np.exp(-u) / (1 + np.exp(-u))
    shares = slopes / np.sum(losses, axis=-1, keepdims=True)
    features = np.einsum("mnt,ntd->mnd", s, tokens)
    pulls = np.einsum("mnt,ntk->mnk", s * (outputs - u[..., None]), keys)
    other_weights = np.where(setup.joint.others, s, 0.0)
    differences: Any = exact(setup.joint.chosen_tokens) - np.einsum("mnt,ntd->mnd", other_weights, setup.sides)
    features = features.widen(differences.error)
    drops = other_weights * np.vecdot(setup.sides, v[:, None, None])
    mean = np.einsum("mnt,ntk->mnk", other_weights, setup.rows)
    differences = np.einsum("mnt,ntk->mnk", drops, setup.rows) - np.sum(drops, axis=-1)[..., None] * mean
    pulls = pulls.widen(differences.error)
    value = np.log(np.sum(losses, axis=-1)) - np.log(exact(setup.problem.n)) + r * setup.margin
    return value, -np.sum(shares[..., None] * features, axis=1), -np.sum(shares[..., None] * pulls, axis=1)
