"""The command ``theorems figures``: the papers' figures, redrawn from this suite's computations."""
