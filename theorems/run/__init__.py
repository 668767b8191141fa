"""Runs of statements on many cases: units of work, processes, results, progress, tables."""
