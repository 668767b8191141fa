"""Appendix B.5: lemmas 8, 9, 10 and theorem 4 (= 7): paths end at locally optimal directions only."""
