"""Data of the statements on steepest descent alone."""
