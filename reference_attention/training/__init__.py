"""Gradient descent, normalized gradient descent, gradient flow in arc length, and joint descent of head and prompt."""
