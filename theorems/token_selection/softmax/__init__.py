"""Section 1 and Appendices A, B.1: lemmas 1, 3 and 6, about the softmax and its gradient at any point."""
