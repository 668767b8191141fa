"""Section 2 and Appendix B: lemma 7 and theorem 3, about descent from a cone to locally optimal tokens."""
