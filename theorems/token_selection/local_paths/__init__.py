"""Section 2 and Appendix B: lemma 7 and theorem 3, about descent that starts near a locally optimal direction."""
