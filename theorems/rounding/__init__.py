"""Softmax attention at points, every number with a bound on its rounding."""
