"""A kernel in a process of its own, which only receives and returns tensors.

The judging process, or judge, chooses the calls, computes the correct results and compares.
"""
