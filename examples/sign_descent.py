"""An example of an update rule of your own for `theorems bench`: sign descent with steps that decrease.

    theorems bench --rule normalized-1 --rule examples/sign_descent.py:SignDescent --data figure-1a --examples 0

p(t+1) = p(t) − sign ∇L(p(t))/√(t+1) is steepest descent in ‖·‖_∞: its margin tends to the largest margin that any p
with the same ‖p‖_∞ has. For one input with equal non-optimal scores, as in figure-1a, the rule is sign descent on
Σ e^{−g_t·p}, the case of separable linear data in Gunasekar et al. (ICML 2018). The statement `steepest-one-input`
bounds the gap to the largest margin at every step, from any start; `steepest-from-a-margin` does so for any inputs,
from a start of enough margin. Because `theory` declares steepest descent, the table of guarantees prints this bound
beside the measured gap. Several p may have the largest margin, so `theory` names no limit direction, and the direction
of p is compared with p_mm.
"""

from __future__ import annotations

import numpy as np

from theorems.api import Optimiser, Theory


class SignDescent(Optimiser):
    """Sign descent with steps of length 1/√(t+1) in every coordinate."""

    theory = Theory(source="largest ℓ∞ margin: steepest-one-input, steepest-from-a-margin", steepest=np.inf)

    def begin(self, setting):
        """Begin a run; `setting` has the problem, the start, and the shape of the trained parameter."""
        self.t = 0

    def step(self, p, gradient):
        """Return the next p; the gradient is e^{log_scale} · direction, of which only e^{log_scale} can underflow."""
        self.t += 1
        return p - np.sign(gradient.direction) / np.sqrt(self.t)
