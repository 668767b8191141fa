"""Next-token prediction: the loss, extended supports, the subspace F of finite limits, training, and its limits."""
