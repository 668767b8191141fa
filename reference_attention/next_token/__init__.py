"""Next-token prediction: its loss as one problem, extended supports, the subspace F, training, and its limits."""
