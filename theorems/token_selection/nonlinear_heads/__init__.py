"""Appendix D: lemma 14 and theorem 8, about nonlinear heads ψ and inputs with several optimal tokens."""
