"""Figures of the paper, in this order: `paths`, `convergence`, `ranks`, `factored`, `mixing`."""
