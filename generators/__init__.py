"""Assumptions as exact predicates, and strategies that build data satisfying them by construction."""
