"""A rule of one's own for `theorems bench`: sign descent with steps that decrease.

    theorems bench --rule normalized-1 --rule examples/sign_descent.py:SignDescent --data figure-1a --examples 0

p(t+1) = p(t) − sign ∇L(p(t))/√(t+1) is steepest descent in ‖·‖_∞. On separable linear data its limit has the largest
margin among all p of the same ‖p‖_∞ (Gunasekar et al., ICML 2018). For attention no theorem is known: p_mm is compared
with, and the last column of the table of rates has the share of the largest ℓ∞ margin.
"""

from __future__ import annotations

import numpy as np

from theorems.api import Optimiser, Theory


class SignDescent(Optimiser):
    """Steps of 1/√(t+1) in every coordinate."""

    theory = Theory(source="linear data: ℓ∞ (Gunasekar et al. 2018)")

    def begin(self, setting):
        """Called once; `setting` has the problem, the start, and the shape of what is trained."""
        self.t = 0

    def step(self, p, gradient):
        """∇L = e^{log_scale} · direction; the scale underflows, the direction does not."""
        self.t += 1
        return p - np.sign(gradient.direction) / np.sqrt(self.t)
