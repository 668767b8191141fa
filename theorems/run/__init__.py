"""Runs of statements on many cases: units of work (a statement and its cases), processes, results, progress, tables."""
