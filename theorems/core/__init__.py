"""Statements and their check on one case: claims, verdicts, tolerances, the implementation under test."""
