"""Softmax attention on arrays that carry bounds of their rounding error."""
