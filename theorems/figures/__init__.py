"""The papers' figures, redrawn from the exact numerics, which ``theorems figures`` draws."""
