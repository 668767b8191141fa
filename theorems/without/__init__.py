"""Statements with one assumption left out: where to find counterexamples, and the conclusion that they refute."""
