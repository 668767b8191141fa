"""Next-token prediction: its training loss as one problem, extended supports, the subspace F, training, its limits."""
