"""The figures of the paper, computed with the reference implementation."""
