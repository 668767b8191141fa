"""Section 2 and Appendix B: lemmas 4, 5, 11 and theorems 1, 2, about paths from any start to the optimal tokens."""
