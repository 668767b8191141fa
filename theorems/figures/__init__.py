"""The command ``theorems figures``: the papers' figures, redrawn from numbers that this suite computes."""
