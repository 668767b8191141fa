"""Hard-margin SVMs over the rationals: ATT-SVM, sets of optimal tokens, labels, and proofs that no solution exists."""
