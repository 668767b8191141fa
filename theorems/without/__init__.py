"""Statements with one assumption left out: where to search for counterexamples, and the conclusion they refute.

Notation: q̄ = q/‖q‖ for a vector q. p̄(R) is the regularization path, the prompt of least risk L with norm at most R.
L_α is the risk if every input selects its chosen token α_i. Θ = 1/‖p_mm‖ is the largest margin, and L_p the smoothness
constant of the risk.
"""
