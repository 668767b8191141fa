"""Section 2 and Appendix B: lemma 7 and theorem 3, about descent to locally optimal tokens from inside a cone."""
