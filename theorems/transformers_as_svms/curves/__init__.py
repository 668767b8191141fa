"""Descents and flows on (K, Q) and nuclear-norm paths, with the claims that they are what they should be."""
