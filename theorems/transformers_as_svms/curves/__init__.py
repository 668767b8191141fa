"""Runs of gradient descent and gradient flow on (K, Q), nuclear-norm paths, and the claims that check these curves."""
