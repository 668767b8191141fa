"""Statements on next tokens without one of their assumptions."""
