"""Runs of gradient descent on (K, Q), nuclear-norm paths, and the claims that check these curves."""
