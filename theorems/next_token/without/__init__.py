"""Statements on next tokens, each without one of its assumptions."""
