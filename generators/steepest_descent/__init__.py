"""Data that only the statements on steepest descent use."""
