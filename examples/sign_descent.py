"""A rule of your own for `theorems bench`: sign descent with steps that decrease.

    theorems bench --rule normalized-1 --rule examples/sign_descent.py:SignDescent --data figure-1a --examples 0

p(t+1) = p(t) − sign ∇L(p(t))/√(t+1) is steepest descent in ‖·‖_∞: its margin tends to the largest margin of a p with
the same ‖p‖_∞. For one input with equal non-optimal scores, as in figure-1a, it is sign descent on Σ e^{−g_t·p}, which
Gunasekar et al. (ICML 2018) treat as separable linear data; `steepest-one-input` bounds the gap at every step from any
start, `steepest-from-a-margin` for any inputs from a start of enough margin. As `theory` says that it is steepest, the
table of guarantees has that bound beside the gap measured. Several p may have the largest margin, so theory names no
limit direction; the direction of p is compared with p_mm.
"""

from __future__ import annotations

import numpy as np

from theorems.api import Optimiser, Theory


class SignDescent(Optimiser):
    """Steps of 1/√(t+1) in every coordinate."""

    theory = Theory(source="largest ℓ∞ margin: steepest-one-input, steepest-from-a-margin", steepest=np.inf)

    def begin(self, setting):
        """Begin a run; `setting` has the problem, the start, and the shape of the trained parameter."""
        self.t = 0

    def step(self, p, gradient):
        """Return the next p; ∇L = e^{log_scale} · direction, where only the scale underflows."""
        self.t += 1
        return p - np.sign(gradient.direction) / np.sqrt(self.t)
