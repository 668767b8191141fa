"""The figures of the paper, from the exact numerics."""
