"""Statements without one of their assumptions: where to find counterexamples, and what fails in the paper's words."""
