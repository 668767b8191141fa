"""Runs of descents and flows on (K, Q), nuclear-norm paths, and the claims that each is the curve it should be."""
