"""Batch schedules and binary data of equal moduli, which only the statements on adaptive methods draw."""
