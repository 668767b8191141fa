"""Gradient descent, normalized gradient descent, gradient flow in arc length, and descent of head and prompt."""
