"""Gradient descent against normalized gradient descent: what ``theorems bench`` measures."""
