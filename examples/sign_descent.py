"""An example of an update rule of your own for `theorems bench`: sign descent with steps of decreasing length.

    theorems bench --rule normalized-1 --rule examples/sign_descent.py:SignDescent --data figure-1a --examples 0

The rule p(t+1) = p(t) − sign ∇L(p(t))/√(t+1) is steepest descent in the norm ‖·‖_∞: its margin, relative to ‖p‖_∞,
tends to the largest margin that any p with ‖p‖_∞ = 1 has. For one input with equal non-optimal scores, as in figure-1a,
the rule is sign descent on Σ_t e^{−(k_opt − k_t)·p}, the case of separable linear data in Gunasekar et al. (ICML 2018).

The statement `steepest-one-input` bounds the gap to the largest margin at every step, from any start, for one input.
The statement `steepest-from-a-margin` bounds the gap for any number of inputs, from a start of sufficient margin.
Because `theory` declares steepest descent, the table of guarantees prints the bound beside the measured gap. Several p
may have the largest margin, so `theory` names no limit direction, and the direction of p is compared with p_mm.
"""

from __future__ import annotations

import numpy as np

from theorems.api import Optimiser, Theory


class SignDescent(Optimiser):
    """Sign descent with steps of length 1/√(t+1) in every coordinate."""

    theory = Theory(source="largest ℓ∞ margin: steepest-one-input, steepest-from-a-margin", steepest=np.inf)

    def begin(self, setting):
        """Begin a run from step 0; `setting` has the problem, the start, and the shape of the trained parameter."""
        self.t = 0

    def step(self, p, gradient):
        """Return the next p. The gradient is given as `direction` times e^{log_scale}, a factor that may underflow."""
        self.t += 1
        return p - np.sign(gradient.direction) / np.sqrt(self.t)
