"""Section 3 and Appendix C: lemmas 12, 13, theorems 5, 6 and a conjecture, about training head and prompt together."""
