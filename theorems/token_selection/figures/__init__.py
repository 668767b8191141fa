"""The figures of the paper, redrawn from numbers that this suite computes.

Modules in the order of the paper: `figure_1`, `figure_2`, `figure_3`, `figure_4`, `figure_8`, `figure_9`.
"""
