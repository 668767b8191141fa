"""Appendix D: lemma 14 and theorem 8, about nonlinear heads and inputs with several optimal tokens."""
