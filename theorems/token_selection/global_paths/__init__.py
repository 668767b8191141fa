"""Section 2 and Appendix B: lemmas 4, 5, 11 and theorems 1, 2: training from any start leads to the optimal tokens."""
