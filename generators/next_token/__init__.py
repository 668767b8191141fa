"""Assumptions and data of the statements on next-token prediction alone."""
