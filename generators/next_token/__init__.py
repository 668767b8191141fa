"""Assumptions and data that only the statements on next-token prediction use."""
