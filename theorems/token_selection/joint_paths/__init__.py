"""Section 3 and Appendix C: lemmas 12, 13, theorems 5, 6 and the conjecture, about head and prompt together."""
