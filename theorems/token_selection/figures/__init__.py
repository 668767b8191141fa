"""The figures of the paper, redrawn from numbers that this suite computes.

Modules in the order of the paper: `figure_1`, `figure_2`, `figure_3`, `figure_4`, `figure_5`, `figure_6`, `figure_8`,
`figure_9`; then `trial_limits` and `regime_map`, which are figures of our own.
"""
