"""Statements of the paper without one of their assumptions."""
