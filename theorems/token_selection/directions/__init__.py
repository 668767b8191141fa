"""Appendix B.5: lemmas 8, 9, 10 and theorem 4 (= 7): regularization paths end only at locally optimal directions."""
